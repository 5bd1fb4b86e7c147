"""Files of changes: whoever reads all files of a folder sees each change once, whatever the cut and the crash."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from headrace.errors import IncompatibleSchemaChange, TargetConflict
from headrace.lake.change_files import head_of
from headrace.lake.errors import CorruptTable
from headrace.lake.frontier import FrontierStore
from headrace.lake.modes import Mode
from headrace.lake.policies import Dropped, Policies
from headrace.lake.settings import TableSettings
from headrace.model.block import SystemKind
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.observe.failpoints import arm, disarm
from headrace.spark.apply import Applier, ApplyOptions
from headrace.spark.targets.parquet import ParquetTarget
from headrace.testing.lives import Transaction, commit_us, random_life
from headrace.testing.notation import table_of
from tests.lake.kept_table import appended
from tests.lake.sql.warehouses import plain
from tests.requirements import req
from tests.spark.folded import run_to
from tests.spark.log import Log, lent

pytestmark = pytest.mark.spark

Rows = Counter[tuple[Any, ...]]
CRASHES = (
    "apply.before_commit",
    "apply.files_written",
    "apply.after_commit",
    "apply.before_manifest",
    "apply.after_manifest",
)
APPEND = TableSettings(Mode.APPEND, policies=Policies(dropped_table=Dropped.DROP))


class Crash(BaseException):
    """The process ends here."""


def crash() -> None:
    raise Crash


class Bench:
    """A change log, a folder, and appliers that come and go."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.log = Log(folder / "changelog", commit_us)
        self.lake = folder / "files"
        self.options = ApplyOptions("test", self.log.folder, self.lake, settings=(("*", APPEND),))
        self.target = ParquetTarget(spark, self.lake, "test")

    def run(self, *ends: int) -> Applier:
        """Start a fresh applier, as after a restart, and apply up to each end that is ahead."""
        return run_to(self.options, self.target, *ends)

    def folder(self, schema: TableSchema) -> Path:
        return self.lake / schema.table.schema / schema.table.name

    def files(self, schema: TableSchema) -> list[str]:
        return sorted(path.name for path in self.folder(schema).glob("*.parquet"))

    def rows(self, schema: TableSchema) -> Rows:
        """Read as a stranger does who knows nothing but the folder."""
        return plain(ds.dataset(self.folder(schema), format="parquet").to_table())


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    yield from lent(Bench(spark, tmp_path))


def live_through(bench: Bench, rng: random.Random, length: int, crashes: list[str]) -> None:
    """Write lives into one log, apply them with random cuts and some crashes, and compare every table."""
    schemas = [
        table_of(3, check=check, name=check.value) for check in KeyCheck if check.value != "none"
    ]
    waiting = {schema: random_life(schema, rng, length) for schema in schemas}
    written: dict[TableSchema, list[Transaction]] = {schema: [] for schema in schemas}
    ends = []
    while any(waiting.values()):
        schema = rng.choice([schema for schema, life in waiting.items() if life])
        transaction = waiting[schema].pop(0).at(bench.log.following)
        bench.log.write(schema, transaction.notation)
        written[schema].append(transaction)
        if rng.random() < 0.3:
            ends.append(bench.log.scn)
    for place in crashes:
        arm(place, crash)
        with pytest.raises(Crash):
            bench.run(rng.choice(ends) if ends else bench.log.scn, bench.log.scn)
        disarm()
        # Whoever comes next cuts elsewhere, and is not asked about what was committed.
        ends = sorted(rng.sample(ends, len(ends) // 2))
        bench.log.write(schemas[0], "+I(900,x,y)")
        extra = Transaction(bench.log.scn)
        extra.add("+I", (900, "x", "y"))
        written[schemas[0]].append(extra)
    bench.run(*ends, bench.log.scn)
    for schema, life in written.items():
        assert bench.rows(schema) == appended(schema, life), schema.table


@req("C12", "C13", "C43", "C44")
def test_every_change_is_there_once_whatever_the_cut_and_the_crash(bench: Bench) -> None:
    live_through(bench, random.Random(3), 4, ["apply.files_written", *CRASHES[2:4]])
    # Everything once more from the very beginning: nothing is written.
    schema = table_of(3, name="immediate")
    files, rows = bench.files(schema), bench.rows(schema)
    shutil.rmtree(bench.lake / "_headrace")
    bench.run(bench.log.scn)
    assert (bench.files(schema), bench.rows(schema)) == (files, rows)
    # No reader of ours is needed, and none of the drafts that crashes left is seen.
    folder = bench.folder(schema)
    assert list(folder.glob(".*.draft"))
    in_spark = bench.spark.read.parquet(str(folder))
    assert plain(in_spark.toArrow()) == rows
    counted = (
        duckdb.connect()
        .execute(f"select count(*) from read_parquet('{folder}/*.parquet')")
        .fetchall()
    )
    assert counted == [(sum(rows.values()),)]


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("seed", range(25))
def test_many_lives(bench: Bench, seed: int) -> None:
    rng = random.Random(seed)
    live_through(bench, rng, rng.choice((8, 16, 30)), rng.choices(CRASHES, k=rng.randrange(4)))


@req("C45")
def test_each_file_has_the_columns_of_its_time_and_readers_merge_them_by_name(bench: Bench) -> None:
    old = table_of(3)
    wide = replace(old.columns[0], type=pa.int64())
    later = replace(old, columns=(wide, old.columns[2], replace(old.columns[2], name="c3")))
    bench.log.announce(old)
    bench.run(bench.log.write(old, "+I(1,a,b)"))
    bench.log.announce(later)
    bench.run(bench.log.write(later, "+I(2,B,C)"))
    first, second = bench.files(old)
    assert (first, second) == (f"{0:020d}.parquet", f"{1:020d}.parquet")
    found = (
        duckdb.connect()
        .execute(
            "select k, c1, c2, c3 from "
            f"read_parquet('{bench.folder(old)}/*.parquet', union_by_name = true) order by k"
        )
        .fetchall()
    )
    assert found == [(1, "a", "b", None), (2, None, "B", "C")]


@req("C30")
def test_a_type_that_older_files_cannot_be_read_with_stops_the_table(bench: Bench) -> None:
    old, other = table_of(2), table_of(2, name="other")
    narrow = replace(old, columns=old.columns[:1])
    back = replace(old, columns=(old.columns[0], Column("c1", pa.binary(), "bytea")))
    bench.log.announce(old)
    bench.log.write(old, "+I(1,a)")
    # Also of a column that was away for a while.
    bench.log.announce(narrow)
    bench.run(bench.log.write(narrow, "+I(2)"))
    rows = bench.rows(old)
    bench.log.announce(back)
    bench.log.write(back, "+I(3,c)")
    (error,) = bench.run(bench.log.write(other, "+I(1,a)")).failing
    assert isinstance(error, IncompatibleSchemaChange)
    assert "public.t.c1 changed from string to binary" in error.message
    assert bench.rows(old) == rows
    assert sum(bench.rows(other).values()) == 1


def head(bench: Bench) -> int:
    found = head_of(bench.folder(table_of(2)))
    assert found is not None
    return found.applied_scn


@req("C13")
def test_two_writers_cannot_add_one_stretch_twice(bench: Bench, spark: SparkSession) -> None:
    schema = table_of(2)
    bench.log.announce(schema)
    bench.run(bench.log.write(schema, "+I(1,a)"))
    stale = ParquetTarget(spark, bench.lake, "test")
    bench.log.write(schema, "+I(2,b)")
    rival = Applier(bench.options, stale)
    begin = rival.begin().from_scn

    def somebody_else() -> None:
        disarm()
        bench.run(bench.log.scn)

    # Between the rival's draft and its number another process adds the same stretch.
    arm("apply.files_written", somebody_else)
    rival.process(begin, bench.log.scn)
    rival.close()
    (error,) = rival.failing
    assert isinstance(error, TargetConflict)
    assert "Another writer added file 1" in error.message
    assert sum(bench.rows(schema).values()) == 2
    assert head(bench) == bench.log.scn


def test_another_pipelines_folder_is_left_alone(bench: Bench, spark: SparkSession) -> None:
    schema = table_of(2)
    bench.log.announce(schema)
    bench.run(bench.log.write(schema, "+I(1,a)"))
    bench.options = replace(bench.options, pipeline="second")
    bench.target = ParquetTarget(spark, bench.lake, "second")
    (error,) = bench.run(bench.log.write(schema, "+I(2,b)")).failing
    assert isinstance(error, TargetConflict)
    assert "is one of the pipeline test" in error.message
    assert sum(bench.rows(schema).values()) == 1


@pytest.mark.parametrize("name", ["..", "a/b"])
def test_a_table_whose_name_leads_elsewhere_is_refused(bench: Bench, name: str) -> None:
    schema = replace(table_of(2), table=TableId("public", name))
    bench.log.announce(schema)
    (error,) = bench.run(bench.log.write(schema, "+I(1,a)")).failing
    assert isinstance(error, IncompatibleSchemaChange)
    assert f"public.{name} cannot be copied" in error.message
    assert not list(bench.lake.rglob("*.parquet"))


def test_a_foreign_file_in_our_numbers_is_named(bench: Bench) -> None:
    schema = table_of(2)
    bench.log.announce(schema)
    bench.run(bench.log.write(schema, "+I(1,a)"))
    (bench.folder(schema) / f"{7:020d}.parquet").write_bytes(b"no such thing")
    (error,) = bench.run(bench.log.write(schema, "+I(2,b)")).failing
    assert isinstance(error, CorruptTable)
    assert f"{7:020d}.parquet of the table t is no file of changes" in error.message
    (bench.folder(schema) / f"{7:020d}.parquet").unlink()
    bench.run(bench.log.scn)
    assert sum(bench.rows(schema).values()) == 2


@req("C30")
def test_old_files_may_be_moved_away_and_a_dropped_table_goes_by_policy(bench: Bench) -> None:
    schema = table_of(2)
    bench.log.announce(schema)
    for key in (1, 2, 3):
        bench.run(bench.log.write(schema, f"+I({key},a)"))
    (bench.folder(schema) / f"{0:020d}.parquet").unlink()
    bench.run(bench.log.write(schema, "+I(4,a)"))
    assert [row[0] for row in sorted(bench.rows(schema))] == [2, 3, 4]
    bench.run(bench.log.tell(SystemKind.DROP_TABLE, schema.table, identity="7"))
    assert not bench.folder(schema).exists()
    newest = FrontierStore(bench.lake, "test").latest()
    assert newest is not None
    assert newest.tables[str(schema.table)].state == "left"
