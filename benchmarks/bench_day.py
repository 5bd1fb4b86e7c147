"""``make bench-day``: a day of batches in a short time, with maintenance and without.

One table and a change log of a thousand transactions of 5,000 changes each, every one a batch of its own; keys are
spread over the whole table (``uniform``) or over its newest twentieth (``newest``). After each batch the files of the
table are counted. The day is told in fifths; the first, in which the table settles, is not compared.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from benchmarks import harness
from benchmarks.backlog_log import PER_TRANSACTION, Backlog
from headrace.lake.delta_log import DeltaTable
from headrace.spark.apply import Applier, ApplyOptions
from headrace.spark.maintenance import MaintenanceSettings
from headrace.spark.session import SessionSettings, build_session
from headrace.spark.targets.delta import DeltaTarget

_SEED = 13
_FIFTHS = 5
_CONTENDERS = {"headrace": MaintenanceSettings(), "without maintenance": None}


@dataclass(frozen=True, slots=True)
class Look:
    """The table after one batch, and what it cost.

    Attributes:
        files: of the newest version.
        mib: their size.
        bytes_per_row: of the rows that count, which become more.
        deleted: rows in them that are deleted.
        batch_s: from the batch's begin to the next one's, maintenance included.
        work_s: of it, looking for rows, writing and commit.
    """

    files: int
    mib: float
    bytes_per_row: float
    deleted: int
    batch_s: float
    work_s: float


def day(spark: SparkSession, log: Backlog, changelog: Path, lake: Path, who: str) -> list[Look]:
    """Apply the log, a transaction at a time, into an empty folder."""
    shutil.rmtree(lake, ignore_errors=True)
    options = ApplyOptions("bench", changelog, lake, maintenance=_CONTENDERS[who])
    applier = Applier(options, DeltaTarget(spark, lake, "bench"))
    applier.begin()
    applier.process(0, log.begin)
    (name,) = log.rows
    table = DeltaTable(lake.absolute() / "bench" / name).follow()
    looks, rows = [], 0
    for scn in range(log.begin, log.end):
        begun = time.monotonic()
        applier.process(scn, scn + 1)
        seconds = time.monotonic() - begun
        held, cost = table.latest(), applier.status.tables[f"bench.{name}"].last_batch
        assert held is not None
        assert cost is not None
        size = sum(file.size for file in held.files)
        deleted = sum(int(file.vector["cardinality"]) for file in held.files if file.vector)
        rows = sum(file.rows() for file in held.files) - deleted
        looks.append(
            Look(
                len(held.files),
                round(size / 2**20, 2),
                size / max(rows, 1),
                deleted,
                seconds,
                cost.probe_s + cost.write_s + cost.commit_s,
            )
        )
    applier.close()
    if applier.failing:
        raise applier.failing[0]
    if rows != log.rows[name]:
        raise SystemExit(f"rows are missing or too many: no figure ({rows}, {log.rows})")
    return looks


def fifths(looks: Sequence[Look]) -> list[dict[str, Any]]:
    """Return the medians of each part of a day, and the slowest hundredth of its batches."""
    found = []
    for part in np.array_split(np.arange(len(looks)), _FIFTHS):
        seen = [asdict(looks[place]) for place in part]
        medians = {name: round(statistics.median(one[name] for one in seen), 4) for name in seen[0]}
        p99 = float(np.percentile([one["batch_s"] for one in seen], 99))
        found.append({**medians, "batch_p99_s": round(p99, 4)})
    return found


def summary(runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return how the last fifth of each day is to the second, and where it ends."""
    found: dict[str, float] = {}
    for scenario in dict.fromkeys(run["scenario"] for run in runs):
        for who, prefix in (("headrace", ""), ("without maintenance", "without_")):
            early, late = (
                harness.select(runs, scenario=scenario, contender=who, part=f"fifth {number}")
                for number in (2, _FIFTHS)
            )
            if not early or not late:
                continue
            for field in ("files", "bytes_per_row", "batch_s"):
                name = f"{prefix}{scenario}_{field}_late_vs_early"
                found[name] = late[0][field] / max(early[0][field], 1e-9)
            found[f"{prefix}{scenario}_files"] = late[0]["files"]
            found[f"{prefix}{scenario}_batch_p99_s"] = late[0]["batch_p99_s"]
    return found


def main() -> int:
    """Measure and keep the result."""
    parser = harness.parser("day", __doc__ or "", runs=1)
    parser.add_argument("--batches", type=int, default=1_000, help="of the day (1,000)")
    parser.add_argument("--rows", type=int, default=2_000_000, help="of the table (2 M)")
    given = parser.parse_args()
    batches, rows = (20, 200_000) if given.quick else (given.batches, given.rows)
    measured_on = harness.machine()
    steps = harness.Steps("day", 2 * (1 + len(_CONTENDERS)))
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="headrace-day-") as place, steps.shown():
        folder = Path(place)
        spark = build_session(SessionSettings(driver_memory="2g", scratch=folder / "spark"))
        with harness.until_stopped(steps):
            for scenario in ("uniform", "newest"):
                changelog = folder / scenario
                newest = rows // 20 if scenario == "newest" else None
                with steps.step(f"{scenario}: a change log of {batches:,} transactions"):
                    changes = batches * PER_TRANSACTION
                    log = Backlog(changelog, 1, rows, changes, _SEED, newest)
                for who in _CONTENDERS:
                    with steps.step(f"{scenario}: {who}"):
                        looks = day(spark, log, changelog, folder / "lake", who)
                    for number, part in enumerate(fifths(looks), 1):
                        told = {"part": f"fifth {number}", "scenario": scenario, "contender": who}
                        runs.append({**told, "round": 1, **part})
                        steps.say(f"    {runs[-1]}")
                shutil.rmtree(changelog)
        # What stopped us may have stopped Spark before; the figures count.
        with suppress(Py4JError, ConnectionError):
            spark.stop()
    return harness.keep(
        "day",
        given,
        steps,
        seed=_SEED,
        sizes={"batches": batches, "changes_per_batch": PER_TRANSACTION, "rows": rows},
        runs=runs,
        summary=summary(runs),
        measured_on=measured_on,
    )


if __name__ == "__main__":
    sys.exit(main())
