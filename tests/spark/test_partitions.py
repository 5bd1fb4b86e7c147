"""Partitioned tables through the applier and in Spark's own hands: moves between partitions, any cut, any crash."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.errors import MadeOtherwise, UnplacedValue
from headrace.lake import settle
from headrace.lake.aside import aside_path
from headrace.lake.copies import Copy
from headrace.lake.delta_log import DeltaTable
from headrace.lake.modes import Mode
from headrace.lake.partitioning import Partitioning
from headrace.lake.settings import TableSettings
from headrace.model.block import Body, SystemEvent, SystemKind
from headrace.model.schema import TableId, TableSchema
from headrace.observe.failpoints import arm, disarm
from headrace.spark.apply import Applier, ApplyOptions
from headrace.spark.targets.delta import DeltaTarget
from headrace.spark.targets.tables import DeltaTables
from headrace.testing.lives import Transaction, commit_us
from headrace.testing.notation import change_batch, table_of
from tests.lake.local_table import LocalTable, keep_files_apart
from tests.lake.parts import SPARK_TEXTS, VALUES, check_files, placed_life, typed
from tests.lake.sql.warehouses import plain
from tests.lake.test_partitions import folded
from tests.requirements import req
from tests.spark.folded import run_to
from tests.spark.log import Log, lent
from tests.spark.test_modes import CRASHES, Crash, Rows, crash, expected

pytestmark = pytest.mark.spark

KEPT = {
    Mode.HISTORY: ("c1", "_current"),
    Mode.SOFT_DELETE: ("c1",),
    Mode.APPEND: ("_op",),
}


MERGED = (
    "(SELECT id AS k FROM RANGE(25, 30)) s ON t.k = s.k WHEN MATCHED THEN UPDATE SET t.c1 = NULL "
    "WHEN NOT MATCHED THEN INSERT (k, c1, c2) VALUES (s.k, 'a/b=c%d e', 'merged')"
)


def named(schema: TableSchema, name: str) -> TableSchema:
    return replace(schema, table=TableId("public", name))


def few_kinds() -> dict[TableSchema, tuple[Mode, tuple[str, ...]]]:
    """Return a mirror by text and one by time, and a history."""
    kinds = every_kind()
    types = (pa.string(), pa.timestamp("us", tz="UTC"))
    return {
        schema: kind
        for schema, kind in kinds.items()
        if kind[0] is Mode.HISTORY or (kind[0] is Mode.MIRROR and schema.column("c1").type in types)
    }


def every_kind() -> dict[TableSchema, tuple[Mode, tuple[str, ...]]]:
    """Return a mirror for each type of partition column, and a table of each other mode."""
    tables: dict[TableSchema, tuple[Mode, tuple[str, ...]]] = {}
    for number, type_ in enumerate(VALUES):
        schema = named(typed(table_of(3), "c1", type_), f"mirror_{number}")
        tables[schema] = (Mode.MIRROR, ("c1",))
    for mode, parts in KEPT.items():
        tables[table_of(3, name=mode.value)] = (mode, parts)
    return tables


class Lives:
    """A change log and a lake of partitioned tables, and appliers that come and go."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        tables: dict[TableSchema, tuple[Mode, tuple[str, ...]]],
    ) -> None:
        self.spark = spark
        self.tables = tables
        self.log = Log(folder / "changelog", commit_us)
        self.lake = folder / "lake"
        self.ask(
            {
                str(schema.table): TableSettings(mode, partition_by=parts)
                for schema, (mode, parts) in tables.items()
            }
        )

    def ask(self, settings: dict[str, TableSettings]) -> None:
        given = tuple(settings.items())
        self.options = ApplyOptions("test", self.log.folder, self.lake, settings=given)

    def write(self, schema: TableSchema, one: Transaction) -> Transaction:
        """Append a transaction, and return it with its number."""
        one = one.at(self.log.following)
        number, table = self.log.registry.put(schema), schema.table
        bodies = [Body(number, table, change_batch(schema, one.rows))] if one.rows else []
        events = [SystemEvent(*at, SystemKind.TRUNCATE, table) for at in one.truncates]
        self.log.batch(*bodies, events=tuple(events))
        return one

    def run(self, *ends: int) -> Applier:
        """Start a fresh applier, as after a restart, and apply up to each end that is ahead."""
        given = self.options.settings
        target = DeltaTarget(self.spark, self.lake, "test", settings=given)
        return run_to(self.options, target, *ends)

    def folder(self, schema: TableSchema) -> Path:
        return self.lake / schema.table.schema / schema.table.name


def in_spark(spark: SparkSession, folder: Path) -> Rows:
    return plain(spark.read.format("delta").load(str(folder)).toArrow())


def held(folder: Path) -> pa.Table:
    return DeltaTable(folder).snapshot().to_table()


def live_through(bench: Lives, rng: random.Random, length: int, crashes: list[str]) -> None:
    """Write lives into one log, apply them with random cuts and some crashes, and compare every table."""
    written: dict[TableSchema, list[Transaction]] = {}
    waiting = {
        schema: placed_life(schema, "c1", rng, length, whole=rng.random() < 0.3)
        for schema in bench.tables
    }
    for schema, life in waiting.items():
        written[schema] = [bench.write(schema, life.pop(0))]
        bench.log.complete(schema)
    ends = []
    while left := [schema for schema, life in waiting.items() if life]:
        schema = rng.choice(left)
        written[schema].append(bench.write(schema, waiting[schema].pop(0)))
        if rng.random() < 0.03:
            ends.append(bench.log.scn)
    for place in crashes:
        arm(place, crash)
        with suppress(Crash):
            bench.run(*ends)
        disarm()
    bench.run(*ends, bench.log.scn)
    for schema, life in written.items():
        mode, parts = bench.tables[schema]
        rows = held(bench.folder(schema))
        if mode is Mode.MIRROR:
            found = Counter(tuple(row.values()) for row in rows.to_pylist())
            assert found == Counter(life[-1].state.values()), schema.table
        else:
            assert plain(rows) == expected(schema, life), schema.table
        assert in_spark(bench.spark, bench.folder(schema)) == plain(rows), schema.table
        check_files(bench.folder(schema), parts)


@pytest.fixture
def lives(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Lives]:
    yield from lent(Lives(spark, tmp_path, request.param()))


@req("C-11", "C12", "C43", "C50")
@pytest.mark.parametrize("lives", [few_kinds], indirect=True)
def test_rows_are_where_they_belong_through_cuts_and_crashes(
    lives: Lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "_SMALL_ROWS", 3)
    live_through(lives, random.Random(3), 5, ["apply.files_written"])


@pytest.mark.long
@pytest.mark.parametrize("lives", [every_kind], indirect=True)
@pytest.mark.parametrize("seed", range(20))
def test_two_hundred_lives_in_partitions(lives: Lives, seed: int) -> None:
    rng = random.Random(100 + seed)
    live_through(lives, rng, 25, rng.choices(CRASHES, k=3))


def test_spark_updates_merges_optimises_and_cleans_what_we_partitioned(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_files_apart(monkeypatch, rows=3)
    schema = table_of(3)
    table = LocalTable(tmp_path, schema, partition_by=("c1",))
    scn = 0

    def write(op: str, keys: range, shift: int) -> None:
        nonlocal scn
        scn += 1
        one = Transaction(scn)
        for key in keys:
            text = SPARK_TEXTS[(key + shift) % 4]
            one.add(op, (key, text, f"v{scn}"))
        table.apply(folded(schema, [one]), scn)
        agree()

    def agree() -> None:
        assert in_spark(spark, tmp_path) == table.content()

    name = f"delta.`{tmp_path}`"
    write("+I", range(27), 0)
    write("=U", range(0, 27, 7), 1)
    assert table.vectors()
    for statement in (
        f"UPDATE {name} SET c1 = 'of/spark=% ü' WHERE k % 11 = 0",
        f"MERGE INTO {name} t USING {MERGED}",
        f"OPTIMIZE {name}",
    ):
        before = table.content()
        spark.sql(statement)
        agree()
        assert (table.content() == before) == statement.startswith("OPTIMIZE"), statement
    # And we go on from what Spark left.
    assert {row[1] for row in table.content()} >= {"of/spark=% ü", "a/b=c%d e", None}
    write("=U", range(0, 22, 11), 2)
    write("+R", range(20, 32), 3)
    assert len(table.content()) == 32
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")
    spark.sql(f"VACUUM {name} RETAIN 0 HOURS")
    agree()
    # Each file that it did not delete is one of the table's.
    files = {file.path for file in table.table.snapshot().files}
    assert {path for path in tmp_path.rglob("*.parquet") if "_delta_log" not in str(path)} == files


def test_spark_reads_only_the_partitions_that_it_is_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = typed(table_of(3), "c1", pa.decimal128(12, 4))
    table = LocalTable(tmp_path, schema, partition_by=("c1",))
    one = Transaction(1)
    for key in range(12):
        one.add("+I", (key, VALUES[pa.decimal128(12, 4)][key % 4], "x"))
    table.apply(folded(schema, [one]), 1)
    frame = spark.read.format("delta").load(str(tmp_path)).where("c1 = -0.5")
    assert frame.count() == 3
    assert {Path(path).parent.name for path in frame.inputFiles()} == {"c1=-0.5000"}


PLAIN = table_of(3, name="plain")
OTHER = table_of(3, name="other")


def one(*rows: tuple[str, tuple[object, ...]]) -> Transaction:
    made = Transaction(0)
    for op, cells in rows:
        made.add(op, cells)
    return made


@pytest.fixture
def pair(spark: SparkSession, tmp_path: Path) -> Iterator[Lives]:
    tables = {PLAIN: (Mode.MIRROR, ("c1",)), OTHER: (Mode.MIRROR, ())}
    made = Lives(spark, tmp_path, tables)
    for schema in tables:
        made.write(schema, one(("+I", (1, "a", "x")), ("+I", (2, "b", "x"))))
        made.log.complete(schema)
    made.run(made.log.scn)
    yield from lent(made)


@pytest.mark.parametrize(
    ("table", "asked", "said"),
    [
        ("plain", (), "partitioned by c1, and the file asks for one that is not partitioned"),
        (
            "plain",
            ("c2",),
            "partitioned by c1, and the file asks for one that is partitioned by c2",
        ),
        ("other", ("c1",), "not partitioned, and the file asks for one that is partitioned by c1"),
    ],
)
def test_other_partitions_than_the_tables_own_are_refused(
    pair: Lives, table: str, asked: tuple[str, ...], said: str
) -> None:
    usual = {"public.plain": TableSettings(partition_by=("c1",))}
    pair.ask({**usual, f"public.{table}": TableSettings(partition_by=asked)})
    version = DeltaTable(pair.folder(PLAIN)).latest_version()
    end = pair.write(PLAIN, one(("+I", (3, "c", "x")))).scn
    (error,) = pair.run(end).failing
    assert isinstance(error, MadeOtherwise)
    assert f"public.{table} is {said}" in error.message
    assert "move the target table away and copy it again" in error.next_step
    # The other one goes on.
    goes_on = DeltaTable(pair.folder(PLAIN)).latest_version() != version
    assert goes_on == (table != "plain")
    pair.ask(usual)
    assert not pair.run(pair.write(OTHER, one(("+I", (3, "c", "x")))).scn).failing
    assert len(held(pair.folder(PLAIN))) == 3


def test_a_table_with_an_empty_text_waits_and_the_others_go_on(pair: Lives) -> None:
    pair.write(PLAIN, one(("=U", (1, "", "x"))))
    end = pair.write(OTHER, one(("=U", (1, "", "x")))).scn
    (error,) = pair.run(end).failing
    assert isinstance(error, UnplacedValue)
    assert "public.plain.c1 holds an empty text" in str(error)
    assert set(held(pair.folder(PLAIN))["c1"].to_pylist()) == {"a", "b"}
    assert set(held(pair.folder(OTHER))["c1"].to_pylist()) == {"", "b"}
    # What comes behind heals it: the row is somewhere else by then.
    end = pair.write(PLAIN, one(("=U", (1, "c", "x")))).scn
    pair.run(end)
    assert set(held(pair.folder(PLAIN))["c1"].to_pylist()) == {"c", "b"}


@req("C45")
def test_a_renamed_partition_column_goes_on_whichever_name_the_file_has(pair: Lives) -> None:
    columns = (PLAIN.columns[0], replace(PLAIN.columns[1], name="place"), PLAIN.columns[2])
    later = replace(PLAIN, columns=columns)
    numbers = {"k": 1, "c1": 2, "c2": 3}
    pair.log.announce(PLAIN, numbers)
    pair.log.announce(later, {"k": 1, "place": 2, "c2": 3})
    pair.run(pair.write(later, one(("=U", (1, "b", "?")), ("+I", (3, "c", "y")))).scn)
    for name in ("place", "c1"):
        pair.ask({"public.plain": TableSettings(partition_by=(name,))})
        pair.run(pair.write(later, one(("=U", (2, name, "?")))).scn)
    rows = held(pair.folder(PLAIN)).to_pylist()
    assert {row["k"]: row["place"] for row in rows} == {1: "b", 2: "c1", 3: "c"}
    assert in_spark(pair.spark, pair.folder(PLAIN)) == plain(held(pair.folder(PLAIN)))
    check_files(pair.folder(PLAIN), ["place"])


def test_a_new_copy_is_partitioned_like_the_table_that_it_stands_beside(tmp_path: Path) -> None:
    settings = (("public.plain", TableSettings(partition_by=("c1",))),)
    tables = DeltaTables(tmp_path, "p", vectors=True, settings=settings)
    tables.evolve(replace(PLAIN, numbers={"k": 1, "c1": 2, "c2": 3}))
    retyped = replace(PLAIN.columns[2], type=pa.binary())
    columns = (PLAIN.columns[0], replace(PLAIN.columns[1], name="place"), retyped)
    later = replace(PLAIN, columns=columns, numbers={"k": 1, "place": 2, "c2": 3})
    state = tables.begin_copy(later, Copy("asked", 10))
    assert state.partitioning == Partitioning(("c1",), ("place",))
    copy = DeltaTable(aside_path(tmp_path, "p", PLAIN.table)).snapshot()
    assert copy.partition_columns == ("place",)
