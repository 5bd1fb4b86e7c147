"""How soon a commit at the source is visible in the Delta table, at the demo's load.

Plays the demo (half a million rows, traffic with every hard case) and measures the transactions that were
committed after the copy was complete: ``python -m benchmarks.bench_freshness --runs 3``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import harness
from headrace.cli.live import Display
from headrace.demo.place import Place
from headrace.demo.play import DemoSettings, play

_SEED = 1


def measure(seconds: float, rate: float, rows: int, console: Console) -> dict[str, Any]:
    """Play the demo once in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        place = Place(Path(folder) / "demo")
        place.clear()
        # The server runs as another user when we are root.
        Path(folder).chmod(0o755)
        with Display(console, "freshness") as display:
            outcome = play(DemoSettings(place, seconds, rate, rows), console, display.show)
    if not outcome.equal:
        raise SystemExit("source and target differ: no figure")
    return {
        **asdict(outcome.freshness),
        "transactions_per_s": outcome.rate,
        "copied_rows_per_s": outcome.copied_rows_per_s,
        "seconds": outcome.seconds,
    }


def main() -> int:
    """Measure and keep the result."""
    parser = argparse.ArgumentParser(prog="bench_freshness")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--rate", type=float, default=300)
    parser.add_argument("--rows", type=int, default=500_000)
    given = parser.parse_args()
    measured_on = harness.machine()
    console = Console(highlight=False)
    runs = [measure(given.seconds, given.rate, given.rows, console) for _ in range(given.runs)]
    path = harness.write(
        "freshness",
        seed=_SEED,
        sizes={"rows": given.rows, "rate": given.rate, "seconds": given.seconds},
        runs=runs,
        summary={
            "delta_p50_s": statistics.median(run["p50_s"] for run in runs),
            "delta_p99_s": statistics.median(run["p99_s"] for run in runs),
            "transactions_per_s": statistics.median(run["transactions_per_s"] for run in runs),
            "copied_rows_per_s": statistics.median(run["copied_rows_per_s"] for run in runs),
        },
        measured_on=measured_on,
    )
    console.print(f"kept in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
