"""``make bench-apply``: what one batch costs in a large Delta table, beside Spark's MERGE.

Every contender has a table of its own with the same rows, and gets the same batches in turn, in one process:

    headrace         our commit: change log → fold → deletion vectors and new rows
    merge_vectors    foreachBatch as people write it: row_number, MERGE INTO, deletion vectors on
    plain            the same with deletion vectors off
    delta_rs         the merge of delta-rs, without Spark
    duckdb           the same MERGE in a DuckDB file: no table for others to read, so a floor

Seconds are those of the whole batch, from the change log or a Parquet file to the version that readers see. Nobody's
files are maintained meanwhile: our maintenance takes a share of all time, here that of the others too; what it costs
is measured by ``make bench-day``. The first round warms the session up and is not counted.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from benchmarks import harness
from benchmarks.apply_peers import Contender, DuckDbFloor, delta_rs, spark_merge
from benchmarks.apply_table import SCHEMA, Batches, copy_table, make_table
from headrace.lake.ledger import table_path
from headrace.spark.apply import Applier, ApplyOptions
from headrace.spark.session import SessionSettings, build_session
from headrace.spark.targets.delta import DeltaTarget
from headrace.spark.warm import touch_workers

__all__ = ["LOADS", "NAMES", "headrace", "main", "measure", "same_rows", "summary"]

_SEED = 7
LOADS = (("uniform", 10_000), ("uniform", 100_000), ("newest", 10_000), ("newest", 100_000))
_LARGE = ("uniform", 1_000_000)
NAMES = {10_000: "10k", 100_000: "100k", 1_000_000: "1m"}


def headrace(spark: SparkSession, folder: Path, batches: Batches) -> tuple[Contender, Applier]:
    """Return our apply, which has its table below ``folder``."""
    target = DeltaTarget(spark, folder, "bench")
    options = ApplyOptions("bench", batches.changelog, folder, maintenance=None)
    applier = Applier(options, target)
    applier.begin()
    applier.process(0, 1)
    return lambda batch: applier.process(batch.begin, batch.end), applier


def measure(
    batches: Batches,
    contenders: Mapping[str, Contender],
    number: int,
    sizes: tuple[tuple[str, int], ...],
    steps: harness.Steps,
    spark: SparkSession,
) -> list[dict[str, Any]]:
    """Give every contender the same batches in turn, one round."""
    runs = []
    for spread, changes in sizes:
        batch = batches.draw(spread, changes)
        with steps.step(f"round {number}, {changes:,} changes, {spread}"):
            for name, apply in contenders.items():
                # Nobody waits for the disk to take what another one left to be written.
                os.sync()
                # Nor for Python workers, which Spark ends while others take their minute; our job keeps them.
                touch_workers(spark)
                started = time.monotonic()
                apply(batch)
                seconds = round(time.monotonic() - started, 4)
                runs.append(
                    {
                        "contender": name,
                        "load": f"{spread} {changes}",
                        "round": number,
                        "changes": changes,
                        "seconds": seconds,
                    }
                )
    return runs


def same_rows(
    spark: SparkSession, tables: Mapping[str, Path], floor: DuckDbFloor | None = None
) -> None:
    """End with an error unless all contenders hold the same rows."""
    columns = ", ".join(column.name for column in SCHEMA.columns)
    with tempfile.TemporaryDirectory(prefix="headrace-apply-") as folder:
        held = {name: f"delta.`{table}`" for name, table in tables.items()}
        if floor is not None:
            file = Path(folder) / "rows.parquet"
            floor.rows_to(file)
            held["duckdb"] = f"parquet.`{file}`"
        sums = {
            name: spark.sql(f"SELECT COUNT(*), SUM(HASH({columns})) FROM {rows}").first()
            for name, rows in held.items()
        }
    if len(set(sums.values())) > 1:
        raise SystemExit(f"the contenders' tables differ: no figure ({sums})")


def summary(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Return the ratios of the medians' pairs, theirs over ours in seconds."""
    found: dict[str, float | None] = {}
    for spread, changes in LOADS:
        ours = harness.select(runs, contender="headrace", load=f"{spread} {changes}")
        for peer in ("merge_vectors", "plain", "delta_rs", "duckdb"):
            theirs = harness.select(runs, contender=peer, load=f"{spread} {changes}")
            if peer == "plain" and spread != "uniform":
                continue
            found[f"{spread}_{NAMES[changes]}_vs_{peer}"] = harness.paired(theirs, ours, "seconds")
    large = harness.median(
        harness.select(runs, contender="headrace", load=_load(_LARGE)), "seconds"
    )
    if large:
        found["rows_per_s_1m"] = _LARGE[1] / large
    return {name: value for name, value in found.items() if value is not None}


def _load(load: tuple[str, int]) -> str:
    return f"{load[0]} {load[1]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and keep the result."""
    parser = harness.parser("apply", __doc__ or "", runs=3)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the table")
    given = parser.parse_args(arguments)
    if importlib.util.find_spec("deltalake") is None:
        parser.error("delta-rs is not installed: pip install 'headrace[bench]'")
    rows = 200_000 if given.quick else given.rows
    rounds = 1 if given.quick else given.runs
    loads = LOADS[:1] + LOADS[2:3] if given.quick else (*LOADS, _LARGE)
    measured_on = harness.machine()
    steps = harness.Steps("apply", (rounds + 1) * (len(loads) + 1) + 1)
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="headrace-apply-") as place, steps.shown():
        folder = Path(place)
        ours = table_path(folder / "headrace", SCHEMA.table)
        tables = {"headrace": ours, "merge_vectors": folder / "merge"}
        tables |= {name: folder / name for name in ("plain", "delta_rs")}
        with steps.step(f"a table of {rows:,} rows"):
            make_table(ours, rows, _SEED, vectors=True)
            copy_table(ours, tables["merge_vectors"], vectors=True)
            copy_table(ours, tables["plain"], vectors=False)
            copy_table(ours, tables["delta_rs"], vectors=False)
            floor = DuckDbFloor(folder / "floor.duckdb", ours)
        batches = Batches(folder, rows, _SEED)
        spark = build_session(SessionSettings(driver_memory="4g", scratch=folder / "spark"))
        apply, applier = headrace(spark, folder / "headrace", batches)
        contenders: dict[str, Contender] = {
            "headrace": apply,
            "merge_vectors": spark_merge(spark, tables["merge_vectors"]),
            "plain": spark_merge(spark, tables["plain"]),
            "delta_rs": delta_rs(tables["delta_rs"]),
            "duckdb": floor,
        }
        with harness.until_stopped(steps):
            for number in range(rounds + 1):
                found = measure(batches, contenders, number, loads, steps, spark)
                with steps.step(f"round {number}, the tables are compared"):
                    same_rows(spark, tables, floor)
                # Round 0 is the warm-up; a round counts once the tables were found equal after it.
                runs += found if number else []
        applier.close()
        batches.close()
        floor.close()
        # What stopped us may have stopped Spark before; the figures count.
        with suppress(Py4JError, ConnectionError):
            spark.stop()
    return harness.keep(
        "apply",
        given,
        steps,
        seed=_SEED,
        sizes={"rows": rows, "rounds": rounds},
        runs=runs,
        summary=summary(runs),
        measured_on=measured_on,
    )


if __name__ == "__main__":
    sys.exit(main())
