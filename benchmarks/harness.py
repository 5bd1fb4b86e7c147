"""What every benchmark shares: where a figure was measured, and the form it is kept in.

``benchmarks/results/NAME.json`` holds ``commit, date, machine, seed, sizes, runs, summary``; summary
names say what they are and in which unit.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
import platform
import signal
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = [
    "RESULTS",
    "Steps",
    "keep",
    "least",
    "machine",
    "median",
    "most",
    "paired",
    "parser",
    "results_folder",
    "select",
    "touch_memory",
    "tried",
    "until_stopped",
    "write",
]

RESULTS = Path(__file__).parent / "results"
QUICK_RESULTS = Path(__file__).parents[1] / "build" / "benchmarks"
"""Where ``--quick`` leaves what is too small to be a figure."""


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def write(
    name: str,
    *,
    seed: int,
    sizes: Mapping[str, Any],
    runs: Sequence[Mapping[str, Any]],
    summary: Mapping[str, float],
    measured_on: Mapping[str, Any],
    folder: Path = RESULTS,
) -> Path:
    """Keep a result and return its path."""
    path = folder / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    value = {
        "commit": _commit(),
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": dict(measured_on),
        "seed": seed,
        "sizes": dict(sizes),
        "runs": [dict(run) for run in runs],
        "summary": {key: round(figure, 4) for key, figure in summary.items()},
    }
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    return path


def parser(name: str, description: str, runs: int) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark of this kind takes."""
    made = argparse.ArgumentParser(
        prog=f"make bench-{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='With make, options stand in ARGS: make bench-capture ARGS="--quick".',
    )
    made.add_argument("--runs", type=int, default=runs, help=f"rounds; medians of so many ({runs})")
    made.add_argument(
        "--quick",
        action="store_true",
        help="tiny sizes and one round, to see it work; the result goes to build/benchmarks",
    )
    made.add_argument("--out", type=Path, help="folder for the result instead of the usual one")
    return made


def results_folder(given: argparse.Namespace) -> Path:
    """Return where a result belongs."""
    return given.out or (QUICK_RESULTS if given.quick else RESULTS)


def keep(name: str, given: argparse.Namespace, steps: Steps, **result: Any) -> int:
    """Write a result where it belongs, say where, and return the exit status; ``result`` as of `write`."""
    path = write(name, **result, folder=results_folder(given))
    steps.say(f"kept in {path}")
    return 0


class Steps:
    """Shows how far a benchmark is: a bar on a terminal, a line a step elsewhere.

    Args:
        name: of the benchmark.
        total: steps that will be taken.
    """

    def __init__(self, name: str, total: int) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[step]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task(name, total=total, step="")
        self._done, self._total = 0, total

    @contextlib.contextmanager
    def shown(self) -> Iterator[Steps]:
        """Show the bar during a block."""
        with self._progress:
            yield self

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Show one step while it is taken."""
        self._done += 1
        if not self._console.is_terminal:
            self._console.print(f"[{self._done}/{self._total}] {title}")
        self._progress.update(self._task, step=title)
        yield
        self._progress.advance(self._task)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(text)


@contextlib.contextmanager
def until_stopped(steps: Steps) -> Iterator[None]:
    """End the block at Ctrl-C or SIGTERM without an error: an hour's figures are kept when the last are not wanted."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        steps.say("stopped; what was measured until now is kept")
    finally:
        signal.signal(signal.SIGTERM, before)


_TOUCHED_BYTES = 4 << 30


def touch_memory() -> None:
    """Write a large file and remove it again.

    A virtual machine is given its memory when that is first written to. Whoever came first would pay for the pages of
    files that the others then reuse: half of what rows of 2.5 KB take.
    """
    piece = bytes(16 << 20)
    with tempfile.TemporaryFile() as file:
        for _ in range(_TOUCHED_BYTES // len(piece)):
            file.write(piece)


def tried(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what a peer's run gave; when it failed, why: the others go on, and the page says so."""
    try:
        return measure()
    except SystemExit as error:
        return {"failed": " ".join(str(error).split())[:300]}


def select(runs: Iterable[Mapping[str, Any]], **wanted: Any) -> list[Mapping[str, Any]]:
    """Return the runs whose fields have the wanted values."""
    return [run for run in runs if all(run.get(key) == value for key, value in wanted.items())]


def median(runs: Iterable[Mapping[str, Any]], field: str) -> float | None:
    """Return the median of a field over the runs that have it, None without any."""
    values = [run[field] for run in runs if run.get(field) is not None]
    return statistics.median(values) if values else None


def least(values: Iterable[float | None]) -> float | None:
    """Return the smallest of the known values, None without any."""
    return min((value for value in values if value is not None), default=None)


def most(values: Iterable[float | None]) -> float | None:
    """Return the largest of the known values, None without any."""
    return max((value for value in values if value is not None), default=None)


def paired(
    ours: Iterable[Mapping[str, Any]], theirs: Iterable[Mapping[str, Any]], field: str
) -> float | None:
    """Return the median of ours over theirs, taken round by round; None when no round has both."""
    other = {run["round"]: run[field] for run in theirs if run.get(field)}
    ratios = [
        run[field] / other[run["round"]]
        for run in ours
        if run.get(field) is not None and run["round"] in other
    ]
    return statistics.median(ratios) if ratios else None


def _commit() -> str:
    answer = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.strip() or "unknown"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if "model name" in line), "unknown"
    )
