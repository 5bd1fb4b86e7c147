"""From an event's commit to its callback: rates, consumers, push or pull."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks import harness
from benchmarks.processes import Child, cpu_s, python, running
from benchmarks.relay_process import LIMIT_S, READY_S, Run, relay

__all__ = ["POLL_S", "delays", "latencies"]

POLL_S = 0.01
"""How often a consumer asks that is not sent what comes, as in the paper."""

_PROCESSES = 4
_WARM_S = 3.0
"""Of each cell left out, and at most half of it: until then processes take their memory from the system for the first
time, which costs more than what they do with it."""

Times = npt.NDArray[np.int64]


@contextmanager
def consuming(
    folder: Path, url: str, count: int, *options: str, keep: bool = False
) -> Iterator[list[Child]]:
    """Give so many consumers, spread over processes, that wait for a line.

    Args:
        folder: where they leave what they keep.
        url: of their relay.
        count: how many.
        options: of theirs.
        keep: the times of all deliveries; each process stays on one processor then.
    """
    sizes = [len(part) for part in np.array_split(range(count), min(count, _PROCESSES))]
    with ExitStack() as stack:
        children = []
        for number, size in enumerate(sizes):
            kept = (
                ["--out", str(folder / f"seen-{number}.npy"), "--on", str(number)] if keep else []
            )
            command = python("benchmarks.relay_consumers", url, str(size), *options, *kept)
            children.append(stack.enter_context(running(command)))
        for child in children:
            child.until_said("waiting", READY_S)
        yield children


def latencies(
    folder: Path, seconds: float, cells: Sequence[tuple[int, int, bool]], steps: harness.Steps
) -> list[Run]:
    """Measure each cell: events per second, consumers, push or pull; one that comes again is another round."""
    runs: list[Run] = []
    out = folder / "readable.npy"
    with (
        running(python("benchmarks.relay_feeder", str(folder / "log"), str(out))) as feeder,
        relay(bench=folder / "log") as (server, url),
    ):
        feeder.until_said("ready", READY_S)
        # Something to stand behind.
        feeder.tell("100 0.1")
        feeder.until_said("played 0", READY_S)
        last = 10
        for number, (rate, count, push) in enumerate(cells, start=1):
            kind = "push" if push else "pull"
            last += round(rate * seconds)
            options = ["--upto", str(last), *(() if push else ("--pull-every", str(POLL_S)))]
            with (
                steps.step(f"{count} consumers, {rate:,} events/s, {kind}"),
                consuming(folder, url, count, *options, keep=True) as children,
            ):
                before = cpu_s(server.pid)
                for child in children:
                    child.tell("go")
                for child in children:
                    child.until_said("ready", READY_S)
                feeder.tell(f"{rate} {seconds}")
                feeder.until_said(f"played {number} up to {last}", seconds + LIMIT_S)
                usages = [child.wait(LIMIT_S) for child in children]
                seen = [np.load(folder / f"seen-{at}.npy") for at in range(len(children))]
                runs.append(
                    {
                        "part": "latency",
                        "contender": "headrace",
                        "rate": rate,
                        "consumers": count,
                        "mode": kind,
                        "round": cells[: number - 1].count((rate, count, push)),
                    }
                    | delays(np.concatenate(seen), np.load(out), rate, last, seconds)
                    | {
                        "relay_cpu_s": round(cpu_s(server.pid) - before, 2),
                        "consumers_cpu_s": round(sum(usage.cpu_s for usage in usages), 2),
                    }
                )
        feeder.end()
        server.end()
    return runs


def delays(seen: Times, readable: Times, rate: int, last: int, seconds: float) -> dict[str, float]:
    """Return percentiles of a cell, milliseconds; its beginning is left out.

    Args:
        seen: first id, rows, time of callback of every batch that was delivered.
        readable: first id, events, commit of the first, and when they were readable, of every stretch.
        rate: events per second.
        last: id of the cell's last event.
        seconds: of the cell.
    """
    first = last - round(rate * seconds) + 1
    stretches = readable[readable[:, 0] >= first]
    ids = np.arange(first, last + 1)
    own = stretches[np.searchsorted(stretches[:, 0], ids, side="right") - 1]
    committed_us = own[:, 2] + (ids - own[:, 0]) * (1e6 / rate)
    counts = seen[:, 1]
    delivered = np.repeat(seen[:, 0] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    called_us = np.repeat(seen[:, 2], counts)
    kept = delivered >= first + round(rate * min(_WARM_S, seconds / 2))
    at = delivered[kept] - first
    found: dict[str, float] = {"deliveries": int(counts.sum())}
    for name, since_us in (("", committed_us), ("readable_", own[:, 3])):
        for share in (50, 99):
            waited_ms = np.percentile(called_us[kept] - since_us[at], share) / 1e3
            found[f"{name}p{share}_ms"] = round(float(waited_ms), 3)
    return found
