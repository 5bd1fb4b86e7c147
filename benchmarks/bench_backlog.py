"""``make bench-backlog``: how fast a change log that waited is brought into Delta tables.

The log holds the copies of ten tables and then millions of changes. Every round begins with empty target tables; the
copies are applied first and not counted, then the rest in batches of the default size, as a job that was down would.
Round 0 warms the session up. After each round every table must show as many rows as the changes leave.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError

from benchmarks import harness
from benchmarks.backlog_log import Backlog
from headrace.changelog.reader import ChangeLogReader
from headrace.lake.delta_log import DeltaTable
from headrace.spark.apply import Applier, ApplyOptions
from headrace.spark.session import SessionSettings, build_session
from headrace.spark.slices import Limits, batch_end
from headrace.spark.targets.delta import DeltaTarget

_SEED = 11


def drain(applier: Applier, changelog: Path, begin: int, end: int, limits: Limits) -> int:
    """Apply a range in batches; return how many."""
    reader, batches = ChangeLogReader(changelog), 0
    while begin < end:
        upto = batch_end(reader, begin, end, limits)
        applier.process(begin, upto)
        begin, batches = upto, batches + 1
    if applier.failing:
        raise applier.failing[0]
    return batches


def stages(applier: Applier) -> dict[str, float]:
    """Return the seconds that the tables' stages took, all tables together; two of them work at a time."""
    names = ("probe_s", "write_s", "commit_s")
    tables = applier.status.tables.values()
    return {
        name: round(sum(getattr(table.all_batches, name) for table in tables), 3) for name in names
    }


def rows_of(lake: Path) -> dict[str, int]:
    """Return how many rows each table shows."""
    found = {}
    for folder in sorted((lake / "bench").iterdir()):
        files = DeltaTable(folder).snapshot().files
        found[folder.name] = sum(file.rows() - len(file.deleted()) for file in files)
    return found


def main() -> int:
    """Measure and keep the result."""
    parser = harness.parser("backlog", __doc__ or "", runs=3)
    parser.add_argument("--changes", type=int, default=5_000_000, help="of the backlog (5 M)")
    parser.add_argument("--tables", type=int, default=10, help="tables (10)")
    parser.add_argument("--rows", type=int, default=100_000, help="of each table before (100,000)")
    given = parser.parse_args()
    changes, rows = (100_000, 10_000) if given.quick else (given.changes, given.rows)
    rounds = 1 if given.quick else given.runs
    measured_on = harness.machine()
    steps = harness.Steps("backlog", rounds + 2)
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="headrace-backlog-") as place, steps.shown():
        folder = Path(place)
        changelog, lake = folder / "changelog", folder / "lake"
        with steps.step(f"a change log of {changes:,} changes"):
            log = Backlog(changelog, given.tables, rows, changes, _SEED)
        options = ApplyOptions("bench", changelog, lake)
        limits = Limits(options.max_rows, 2**30)
        spark = build_session(SessionSettings(driver_memory="2g", scratch=folder / "spark"))
        with harness.until_stopped(steps):
            for number in range(rounds + 1):
                shutil.rmtree(lake, ignore_errors=True)
                applier = Applier(options, DeltaTarget(spark, lake, "bench"))
                with steps.step(f"round {number}"):
                    applier.begin()
                    drain(applier, changelog, 0, log.begin, limits)
                    before = stages(applier)
                    started = time.monotonic()
                    batches = drain(applier, changelog, log.begin, log.end, limits)
                    seconds = time.monotonic() - started
                cost = {name: round(s - before[name], 3) for name, s in stages(applier).items()}
                applier.close()
                if (held := rows_of(lake)) != log.rows:
                    raise SystemExit(
                        f"rows are missing or too many: no figure ({held}, {log.rows})"
                    )
                rate = round(log.changes / seconds)
                steps.say(f"    {rate:,} changes/s · {batches} batches")
                if number:
                    runs.append(
                        {
                            "contender": "headrace",
                            "round": number,
                            "changes": log.changes,
                            "batches": batches,
                            "seconds": round(seconds, 3),
                            "rows_per_s": rate,
                            **cost,
                        }
                    )
        # What stopped us may have stopped Spark before; the figures count.
        with suppress(Py4JError, ConnectionError):
            spark.stop()
    found = harness.median(runs, "rows_per_s")
    return harness.keep(
        "backlog",
        given,
        steps,
        seed=_SEED,
        sizes={"changes": changes, "tables": given.tables, "rows": rows, "rounds": rounds},
        runs=runs,
        summary={} if found is None else {"changes_per_s": found},
        measured_on=measured_on,
    )


if __name__ == "__main__":
    sys.exit(main())
