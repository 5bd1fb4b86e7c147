"""``make bench-growth``: what a batch costs as the Delta table grows, beside Spark's MERGE with deletion vectors.

The same batches as ``make bench-apply``, into tables of 2, 10 and 100 million rows. Of our
seconds, those of the probe (looking for the rows that die) are told apart: they are the part that grows with the
table. Where the probe takes half of a batch, it has stopped paying for itself and looking less is worth more than
writing faster; that many rows is ``*_probe_is_half_at_rows``, read off a straight line through our medians.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from benchmarks import harness
from benchmarks.apply_peers import spark_merge
from benchmarks.apply_table import SCHEMA, Batches, copy_table, make_table
from benchmarks.bench_apply import LOADS, NAMES, headrace, measure, same_rows
from headrace.lake.ledger import table_path
from headrace.spark.apply import Applier
from headrace.spark.session import SessionSettings, build_session

_SEED = 8
_SIZES = {2_000_000: "2m_rows", 10_000_000: "10m_rows", 100_000_000: "100m_rows"}
_QUICK = {200_000: "200k_rows", 600_000: "600k_rows"}


def grown(
    spark: SparkSession, folder: Path, rows: int, part: str, rounds: int, steps: harness.Steps
) -> list[dict[str, Any]]:
    """Measure one size of table, named ``part``; it is made in ``folder``, which must be empty."""
    ours = table_path(folder / "headrace", SCHEMA.table)
    merge = folder / "merge"
    with steps.step(f"a table of {rows:,} rows"):
        make_table(ours, rows, _SEED, vectors=True)
        copy_table(ours, merge, vectors=True)
    batches = Batches(folder, rows, _SEED)
    apply, applier = headrace(spark, folder / "headrace", batches)
    runs: list[dict[str, Any]] = []
    contenders = {"headrace": apply, "merge_vectors": spark_merge(spark, merge)}
    try:
        for number in range(rounds + 1):
            loads = [(spread, min(size, rows // 20)) for spread, size in LOADS]
            found = []
            for load in loads:
                measured = measure(batches, contenders, number, (load,), steps, spark)
                found += [{"part": part, **run, **_probed(run, applier)} for run in measured]
            # Round 0 is the warm-up.
            runs += found if number else []
        with steps.step(f"{rows:,} rows: the tables are compared"):
            same_rows(spark, {"headrace": ours, "merge_vectors": merge})
    finally:
        applier.close()
        batches.close()
    return runs


def _probed(run: Mapping[str, Any], applier: Applier) -> dict[str, float]:
    """Return the seconds of the probe in the batch just measured, when it was ours."""
    cost = applier.status.tables[str(SCHEMA.table)].last_batch
    if run["contender"] != "headrace" or cost is None:
        return {}
    return {"probe_s": round(cost.probe_s, 4), "write_s": round(cost.write_s, 4)}


def summary(runs: list[dict[str, Any]], sizes: Mapping[int, str]) -> dict[str, float]:
    """Return our seconds, the ratio to theirs and the probe's share for each load and size."""
    found: dict[str, float | None] = {}
    for spread, changes in LOADS:
        points = []
        for rows, name in sizes.items():
            load = f"{spread} {min(changes, rows // 20)}"
            ours = harness.select(runs, contender="headrace", load=load, part=name)
            theirs = harness.select(runs, contender="merge_vectors", load=load, part=name)
            seconds, probe = harness.median(ours, "seconds"), harness.median(ours, "probe_s")
            key = f"{spread}_{NAMES[changes]}_{name}"
            found[f"{key}_s"] = seconds
            found[f"{key}_vs_merge_vectors"] = harness.paired(theirs, ours, "seconds")
            if seconds and probe is not None:
                found[f"{key}_probe_share"] = probe / seconds
                points.append((rows, probe / seconds))
        found[f"{spread}_{NAMES[changes]}_probe_is_half_at_rows"] = _half(points)
    return {name: value for name, value in found.items() if value is not None}


def _half(points: Sequence[tuple[int, float]]) -> float | None:
    """Return where the share passes one half between two sizes, None when it does not."""
    for (rows, share), (more_rows, more_share) in pairwise(points):
        if share < 0.5 <= more_share:
            return rows + (more_rows - rows) * (0.5 - share) / (more_share - share)
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and keep the result."""
    parser = harness.parser("growth", __doc__ or "", runs=3)
    given = parser.parse_args(arguments)
    rounds = 1 if given.quick else given.runs
    sizes = _QUICK if given.quick else _SIZES
    measured_on = harness.machine()
    steps = harness.Steps("growth", len(sizes) * ((rounds + 1) * len(LOADS) + 2))
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="headrace-growth-") as place, steps.shown():
        spark = build_session(SessionSettings(driver_memory="4g", scratch=Path(place) / "spark"))
        with harness.until_stopped(steps):
            for rows, part in sizes.items():
                with tempfile.TemporaryDirectory(dir=place) as folder:
                    runs += grown(spark, Path(folder), rows, part, rounds, steps)
        # What stopped us may have stopped Spark before; the figures count.
        with suppress(Py4JError, ConnectionError):
            spark.stop()
    return harness.keep(
        "growth",
        given,
        steps,
        seed=_SEED,
        sizes={"rows": list(sizes), "rounds": rounds},
        runs=runs,
        summary=summary(runs, sizes),
        measured_on=measured_on,
    )


if __name__ == "__main__":
    sys.exit(main())
