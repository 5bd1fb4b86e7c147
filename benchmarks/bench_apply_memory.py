"""``make bench-apply-memory``: what a batch holds in memory at its peak, by its size.

A process of its own applies each batch to a large Delta table, with the session's settings as they are shipped. Its
anonymous resident memory is looked at fifty times a second: that of the driver, that of Java, and that of all of
Spark's Python workers together. A batch of no changes shows what they take before any row comes.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.apply_table import SCHEMA, Batches, make_table
from benchmarks.processes import Child, family_mib, python
from headrace.lake.ledger import table_path

_SEED = 9
_SIZES = {0: "none", 10_000: "10k", 100_000: "100k", 1_000_000: "1m"}
_LIMIT_S = 600.0
_SAMPLE_S = 0.02


def apply_alone(folder: Path, begin: int, end: int) -> dict[str, float]:
    """Return the peaks of a process that applies one batch, MiB."""
    child = Child(python("benchmarks.apply_child", str(folder), str(begin), str(end)))
    peaks = {"driver_mib": 0.0, "java_mib": 0.0, "workers_mib": 0.0, "all_mib": 0.0}
    while child.alive:
        for name, held in family_mib(child.pid).items():
            peaks[name] = max(peaks[name], held)
        time.sleep(_SAMPLE_S)
    child.wait(_LIMIT_S)
    return peaks


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and keep the result."""
    parser = harness.parser("apply-memory", __doc__ or "", runs=3)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the table")
    given = parser.parse_args(arguments)
    rows = 200_000 if given.quick else given.rows
    rounds = 1 if given.quick else given.runs
    sizes = {size: name for size, name in _SIZES.items() if size <= rows // 10}
    measured_on = harness.machine()
    steps = harness.Steps("apply-memory", 1 + rounds * len(sizes))
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="headrace-memory-") as place, steps.shown():
        folder = Path(place)
        with steps.step(f"a table of {rows:,} rows"):
            make_table(table_path(folder / "headrace", SCHEMA.table), rows, _SEED, vectors=True)
        batches = Batches(folder, rows, _SEED)
        apply_alone(folder, 0, 1)
        at = 1
        with harness.until_stopped(steps):
            for number in range(rounds):
                for size, name in sizes.items():
                    with steps.step(f"round {number + 1}, {size:,} changes"):
                        before, at = at, batches.draw("uniform", size).end if size else at
                        peaks = apply_alone(folder, before, at)
                    runs.append({"round": number, "load": name, "changes": size, **peaks})
                    steps.say(
                        "    " + " · ".join(f"{key} {value:,.0f}" for key, value in peaks.items())
                    )
        batches.close()
    return harness.keep(
        "apply_memory",
        given,
        steps,
        seed=_SEED,
        sizes={"rows": rows, "rounds": rounds},
        runs=runs,
        summary=summary(runs),
        measured_on=measured_on,
    )


def summary(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Return the largest peak of each size, Java's apart from that of everything in Python."""
    found: dict[str, float] = {}
    for run in runs:
        for metric, held in (
            (f"{run['load']}_python_mib", run["driver_mib"] + run["workers_mib"]),
            (f"{run['load']}_java_mib", run["java_mib"]),
        ):
            found[metric] = max(held, found.get(metric, 0.0))
    return found


if __name__ == "__main__":
    sys.exit(main())
