"""``make bench-apply``: what one batch costs in a large Delta table, beside Spark's MERGE.

Every contender has a table of its own with the same rows, and gets the same batches in turn, in one Spark session:

    headrace         our commit: change log → fold → deletion vectors and new rows
    merge_vectors    foreachBatch as people write it: row_number, MERGE INTO, deletion vectors on
    plain            the same with deletion vectors off

Seconds are those of the whole batch, from the change log or a Parquet file to the version that readers see. The first
round warms the session up and is not counted.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from benchmarks import harness
from benchmarks.apply_table import SCHEMA, Batches, Orders, copy_table, make_table
from headrace.lake.ledger import table_path
from headrace.spark.apply import Applier, ApplyOptions
from headrace.spark.session import SessionSettings, build_session
from headrace.spark.targets.delta import DeltaTarget

_SEED = 7
_LOADS = (("uniform", 10_000), ("uniform", 100_000), ("newest", 10_000), ("newest", 100_000))
_LARGE = ("uniform", 1_000_000)
_NAMES = {10_000: "10k", 100_000: "100k", 1_000_000: "1m"}

Contender = Callable[[Orders], None]


def headrace(spark: SparkSession, folder: Path, batches: Batches) -> tuple[Contender, Applier]:
    """Return our apply, which has its table below ``folder``."""
    target = DeltaTarget(spark, folder, "bench")
    applier = Applier(ApplyOptions("bench", batches.changelog, folder), target)
    applier.begin()
    applier.process(0, 1)
    return lambda batch: applier.process(batch.begin, batch.end), applier


def merge(spark: SparkSession, table: Path) -> Contender:
    """Return a MERGE of the newest change of each key, as a streaming job runs it batch by batch."""
    names = [column.name for column in SCHEMA.columns]
    session = spark.newSession()
    # The usual number of partitions of a small machine, and Delta's own settings as they come.
    session.conf.set("spark.sql.shuffle.partitions", "4")
    sets = ", ".join(f"{name} = s.{name}" for name in names)
    values = ", ".join(f"s.{name}" for name in names)

    def apply(batch: Orders) -> None:
        session.read.parquet(str(batch.file)).createOrReplaceTempView("changes")
        session.sql(
            f"MERGE INTO delta.`{table}` t USING ("
            "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY seq DESC) AS n "
            "FROM changes) WHERE n = 1) s ON t.id = s.id "
            "WHEN MATCHED AND s.op = '-D' THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {sets} "
            f"WHEN NOT MATCHED AND s.op <> '-D' THEN INSERT ({', '.join(names)}) VALUES ({values})"
        )

    return apply


def measure(
    batches: Batches,
    contenders: Mapping[str, Contender],
    number: int,
    sizes: tuple[tuple[str, int], ...],
    steps: harness.Steps,
) -> list[dict[str, Any]]:
    """Give every contender the same batches in turn, one round."""
    runs = []
    for spread, changes in sizes:
        batch = batches.draw(spread, changes)
        with steps.step(f"round {number}, {changes:,} changes, {spread}"):
            for name, apply in contenders.items():
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


def same_rows(spark: SparkSession, tables: Mapping[str, Path]) -> None:
    """End with an error unless all contenders hold the same rows."""
    columns = ", ".join(column.name for column in SCHEMA.columns)
    sums = {
        name: spark.sql(f"SELECT COUNT(*), SUM(HASH({columns})) FROM delta.`{table}`").first()
        for name, table in tables.items()
    }
    if len(set(sums.values())) > 1:
        raise SystemExit(f"the contenders' tables differ: no figure ({sums})")


def summary(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Return the ratios of the medians' pairs, theirs over ours in seconds."""
    found: dict[str, float | None] = {}
    for spread, changes in _LOADS:
        ours = harness.select(runs, contender="headrace", load=f"{spread} {changes}")
        for peer, label in (("merge_vectors", "merge_vectors"), ("plain", "plain")):
            theirs = harness.select(runs, contender=peer, load=f"{spread} {changes}")
            if peer == "plain" and (spread, changes) != ("uniform", 10_000):
                continue
            found[f"{spread}_{_NAMES[changes]}_vs_{label}"] = harness.paired(
                theirs, ours, "seconds"
            )
    large = harness.median(
        harness.select(runs, contender="headrace", load=_load(_LARGE)), "seconds"
    )
    if large:
        found["rows_per_s_1m"] = _LARGE[1] / large
    return {name: value for name, value in found.items() if value is not None}


def _load(load: tuple[str, int]) -> str:
    return f"{load[0]} {load[1]}"


def main() -> int:
    """Measure and keep the result."""
    parser = harness.parser("apply", __doc__ or "", runs=3)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the table")
    given = parser.parse_args()
    rows = 200_000 if given.quick else given.rows
    rounds = 1 if given.quick else given.runs
    loads = _LOADS[:1] + _LOADS[2:3] if given.quick else (*_LOADS, _LARGE)
    measured_on = harness.machine()
    steps = harness.Steps("apply", (rounds + 1) * (len(loads) + 1) + 1)
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="headrace-apply-") as place, steps.shown():
        folder = Path(place)
        ours = table_path(folder / "headrace", SCHEMA.table)
        tables = {"headrace": ours, "merge_vectors": folder / "merge", "plain": folder / "plain"}
        with steps.step(f"a table of {rows:,} rows"):
            make_table(ours, rows, _SEED, vectors=True)
            copy_table(ours, tables["merge_vectors"], vectors=True)
            copy_table(ours, tables["plain"], vectors=False)
        batches = Batches(folder, rows, _SEED)
        spark = build_session(SessionSettings(driver_memory="4g", scratch=folder / "spark"))
        apply, applier = headrace(spark, folder / "headrace", batches)
        contenders: dict[str, Contender] = {
            "headrace": apply,
            "merge_vectors": merge(spark, tables["merge_vectors"]),
            "plain": merge(spark, tables["plain"]),
        }
        with harness.until_stopped(steps):
            for number in range(rounds + 1):
                found = measure(batches, contenders, number, loads, steps)
                with steps.step(f"round {number}, the tables are compared"):
                    same_rows(spark, tables)
                # Round 0 is the warm-up; a round counts once the tables were found equal after it.
                runs += found if number else []
        applier.close()
        batches.close()
        # What stopped us may have stopped Spark before; the figures count.
        with suppress(Py4JError, ConnectionError):
            spark.stop()
    path = harness.write(
        "apply",
        seed=_SEED,
        sizes={"rows": rows, "rounds": rounds},
        runs=runs,
        summary=summary(runs),
        measured_on=measured_on,
        folder=harness.results_folder(given),
    )
    steps.say(f"kept in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
