"""Tables of every mode through the applier: any cut, any crash, any replay keeps what the model keeps."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.errors import IncompatibleSchemaChange, MadeOtherwise, MissingBase
from headrace.lake.delta_log import DeltaTable
from headrace.lake.modes import Mode
from headrace.lake.settings import TableSettings
from headrace.model.block import (
    ORIGIN_LOG,
    Block,
    Body,
    SystemEvent,
    SystemKind,
    transaction_index,
)
from headrace.model.schema import KeyCheck, TableSchema
from headrace.observe.failpoints import arm, disarm
from headrace.spark.apply import Applier, ApplyOptions
from headrace.spark.read import frontier_at, read
from headrace.spark.targets.base import Target
from headrace.spark.targets.delta import DeltaTarget
from headrace.testing.lives import Transaction, commit_us, random_life
from headrace.testing.notation import change_batch, parse_history, table_of
from headrace.testing.versions import ModelVersions
from tests.lake.kept_table import appended
from tests.lake.sql.warehouses import plain
from tests.requirements import req
from tests.spark.folded import run_to
from tests.spark.log import Log, lent

pytestmark = pytest.mark.spark

Rows = Counter[tuple[Any, ...]]
SETTINGS = tuple((f"public.{mode.value}*", TableSettings(mode)) for mode in Mode)
CRASHES = ("apply.before_commit", "apply.files_written", "apply.after_commit")


class Crash(BaseException):
    """The process ends here."""


class Bench:
    """A change log, a lake whose tables have modes, and appliers that come and go."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.log = Log(folder / "changelog", commit_us)
        self.lake = folder / "lake"
        self.options = ApplyOptions("test", self.log.folder, self.lake, settings=SETTINGS)
        self.target: Target = DeltaTarget(spark, self.lake, "test")

    def run(self, *ends: int) -> Applier:
        """Start a fresh applier, as after a restart, and apply up to each end that is ahead."""
        return run_to(self.options, self.target, *ends)

    def folder(self, schema: TableSchema) -> Path:
        return self.lake / schema.table.schema / schema.table.name

    def rows(self, schema: TableSchema) -> Rows:
        return plain(DeltaTable(self.folder(schema)).snapshot().to_table())

    def in_spark(self, schema: TableSchema) -> Rows:
        frame = self.spark.read.format("delta").load(str(self.folder(schema)))
        return plain(frame.toArrow())


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    yield from lent(Bench(spark, tmp_path))


def expected(schema: TableSchema, life: list[Transaction]) -> Rows:
    """Return what a table of its mode holds behind a life."""
    name = schema.table.name
    model = ModelVersions.of(life)
    if name.startswith(Mode.APPEND.value):
        return appended(schema, life)
    if name.startswith(Mode.SOFT_DELETE.value):
        return model.soft()
    if name.startswith(Mode.HISTORY.value):
        return model.history()
    return Counter(life[-1].state.values())


def lives(rng: random.Random, length: int) -> dict[TableSchema, list[Transaction]]:
    """Return a life for a table of each mode and each way to check a key."""
    checks = (KeyCheck.IMMEDIATE, KeyCheck.DEFERRED)
    schemas = [
        table_of(3, check=check, name=f"{mode.value}_{check.value}")
        for mode in Mode
        for check in checks
    ]
    return {schema: random_life(schema, rng, length) for schema in schemas}


def crash() -> None:
    raise Crash


def live_through(bench: Bench, rng: random.Random, length: int, crashes: list[str]) -> None:
    """Write lives into one log, apply them with random cuts and some crashes, and compare every table."""
    written: dict[TableSchema, list[Transaction]] = {}
    waiting = {schema: list(life) for schema, life in lives(rng, length).items()}
    for schema in waiting:
        written[schema] = [waiting[schema].pop(0).at(bench.log.following)]
        bench.log.write(schema, written[schema][0].notation)
        bench.log.complete(schema)
    ends = []
    while any(waiting.values()):
        schema = rng.choice([schema for schema, life in waiting.items() if life])
        transaction = waiting[schema].pop(0).at(bench.log.following)
        bench.log.write(schema, transaction.notation)
        written[schema].append(transaction)
        if rng.random() < 0.05:
            ends.append(bench.log.scn)
    for place in crashes:
        arm(place, crash)
        with pytest.raises(Crash):
            bench.run(rng.choice(ends) if ends else bench.log.scn, bench.log.scn)
        disarm()
        # Whoever comes next cuts elsewhere, and is not asked about what was committed.
        ends = sorted(rng.sample(ends, len(ends) // 2))
    bench.run(*ends, bench.log.scn)
    for schema, life in written.items():
        assert bench.rows(schema) == expected(schema, life), schema.table


@req("C-11", "C12", "C13", "C43")
def test_every_mode_keeps_what_the_model_keeps_whatever_the_cut_and_the_crash(
    bench: Bench,
) -> None:
    live_through(bench, random.Random(7), 5, list(CRASHES))
    tables = sorted((bench.lake / "public").iterdir())
    assert len(tables) == 8
    # Everything once more from the very beginning: nothing is written.
    versions = [DeltaTable(folder).latest_version() for folder in tables]
    shutil.rmtree(bench.lake / "_headrace")
    bench.run(bench.log.scn)
    assert [DeltaTable(folder).latest_version() for folder in tables] == versions
    kept = [mode for mode in Mode if mode is not Mode.MIRROR]
    for schema in (table_of(3, name=f"{mode.value}_immediate") for mode in kept):
        assert bench.in_spark(schema) == bench.rows(schema), schema.table


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("seed", range(25))
def test_two_hundred_lives_in_spark(bench: Bench, seed: int) -> None:
    rng = random.Random(seed)
    crashes = rng.choices(CRASHES, k=rng.randrange(4))
    live_through(bench, rng, rng.choice((8, 16, 30)), crashes)


def named(mode: Mode, columns: int = 2, check: KeyCheck = KeyCheck.IMMEDIATE) -> TableSchema:
    """Return a table that has a mode by its name."""
    return table_of(columns, check=check, name=mode.value)


def without_meta(bench: Bench, schema: TableSchema) -> Rows:
    """Return the rows of a table, the columns alone that the source has."""
    held = DeltaTable(bench.folder(schema)).snapshot().to_table(schema.names)
    return plain(held)


@req("C45")
def test_columns_come_and_change_their_names_in_every_mode(bench: Bench) -> None:
    kept = [mode for mode in Mode if mode is not Mode.MIRROR]
    for mode in kept:
        old = named(mode, 3)
        new = replace(
            old,
            columns=(
                old.columns[0],
                replace(old.columns[1], name="label"),
                old.columns[2],
                replace(old.columns[2], name="extra"),
            ),
        )
        bench.log.announce(old, {"k": 1, "c1": 2, "c2": 3})
        bench.log.write(old, "+I(1,a,b) | +I(2,c,d)")
        bench.log.complete(old)
        bench.log.announce(new, {"k": 1, "label": 2, "c2": 3, "extra": 4})
        bench.log.write(new, "=U(1,x,?,e)")
    bench.run(bench.log.scn)
    rows = {mode: without_meta(bench, named(mode, 1)) for mode in kept}
    schema = DeltaTable(bench.folder(named(Mode.HISTORY))).snapshot().schema
    assert schema.names[:3] == ["k", "label", "c2"]
    assert schema.names[-1] == "extra"
    assert rows[Mode.SOFT_DELETE] == Counter({(1,): 1, (2,): 1})
    assert rows[Mode.HISTORY] == Counter({(1,): 2, (2,): 1})
    assert rows[Mode.APPEND] == Counter({(1,): 2, (2,): 1})
    history = DeltaTable(bench.folder(named(Mode.HISTORY))).snapshot().to_table()
    shown = history.select(["k", "label", "c2", "extra", "_current"]).to_pylist()
    assert sorted(tuple(row.values()) for row in shown if row["k"] == 1) == [
        (1, "a", "b", None, False),
        (1, "x", "b", "e", True),
    ]


@req("C50")
def test_changes_of_a_table_without_a_key_are_appended(bench: Bench) -> None:
    bag = named(Mode.APPEND, check=KeyCheck.NONE)
    bench.log.write(bag, "+I(1,a) +I(1,a) | T | -U(1,a) +U(1,b)")
    bench.run(bench.log.complete(bag))
    held = DeltaTable(bench.folder(bag)).snapshot().to_table()
    # In this order in the file, too.
    shown = [
        tuple(row[name] for name in ("k", "c1", "_op", "_scn", "_ord")) for row in held.to_pylist()
    ]
    assert shown == [
        (1, "a", "+I", 10, 0),
        (1, "a", "+I", 10, 1),
        (None, None, "T", 20, 0),
        (1, "a", "-U", 30, 0),
        (1, "b", "+U", 30, 1),
    ]


def test_a_table_without_a_key_has_no_versions(bench: Bench) -> None:
    bag = named(Mode.HISTORY, check=KeyCheck.NONE)
    other = named(Mode.MIRROR)
    bench.log.write(bag, "+I(1,a)")
    bench.log.write(other, "+I(1,a)")
    (error,) = bench.run(bench.log.complete(other)).failing
    assert isinstance(error, IncompatibleSchemaChange)
    assert "public.history has no key" in error.message
    assert bench.rows(other) == Counter({(1, "a"): 1})


@pytest.mark.parametrize("held", [Mode.MIRROR, Mode.HISTORY])
def test_a_table_that_was_made_in_another_mode_is_left_alone(bench: Bench, held: Mode) -> None:
    schema = table_of(2)
    bench.options = replace(bench.options, settings=(("*.t", TableSettings(held)),))
    bench.log.write(schema, "+I(1,a)")
    bench.run(bench.log.complete(schema))
    bench.options = replace(bench.options, settings=(("*.t", TableSettings(Mode.SOFT_DELETE)),))
    (error,) = bench.run(bench.log.write(schema, "-D(1)")).failing
    assert isinstance(error, MadeOtherwise)
    assert f"made as {held.value}, and the file asks for soft_delete" in error.message
    assert DeltaTable(bench.folder(schema)).latest_version() == 1


def test_a_version_whose_row_is_missing_waits_for_it_to_be_read_again(bench: Bench) -> None:
    schema = named(Mode.HISTORY, 3)
    bench.log.write(schema, "+I(1,a,b)")
    bench.log.complete(schema)
    (error,) = bench.run(bench.log.write(schema, "=U(1,x,?) | =U(2,y,?)")).failing
    assert isinstance(error, MissingBase)
    assert error.columns == ["c2"]
    healed = bench.log.write(schema, "+R(2,y,z)")
    assert not bench.run(healed).failing
    shown = [(*row[:3], row[-1]) for row in sorted(bench.rows(schema), key=lambda r: (r[0], r[3]))]
    assert shown == [(1, "a", "b", False), (1, "x", "b", True), (2, "y", "z", True)]


def test_a_history_as_of_a_time_is_the_mirror_at_that_frontier(bench: Bench) -> None:
    rng = random.Random(3)
    pair = [table_of(3, name=name) for name in ("mirror_x", "history_x")]
    life = random_life(pair[0], rng, 8)
    ends = []
    for transaction in life:
        rows = transaction.at(bench.log.following).notation
        ends.append(bench.log.write(pair[0], rows))
        bench.log.write(pair[1], rows)
    bench.log.complete(pair[0])
    bench.run(bench.log.complete(pair[1]))
    newest = read(bench.spark, bench.lake, "test", "public.history_x")
    for number in (2, 5):
        # The second table's transaction comes right behind the first one's.
        scn = ends[number] + 10
        at = f"timestamp_micros({commit_us(scn)})"
        valid = f"_valid_from <= {at} AND (_valid_to IS NULL OR {at} < _valid_to)"
        shown = plain(newest.where(valid).select("k", "c1", "c2").toArrow())
        assert shown == Counter(life[number].state.values()), scn
    assert frontier_at(bench.lake, "test").tables["public.history_x"].state == "live"


def test_a_table_that_comes_upon_another_ones_target_is_left_alone(bench: Bench) -> None:
    """The log has not spoken of it at the start, so nobody could ask before."""
    schema = table_of(2)
    bench.log.write(schema, "+I(1,a)")
    bench.run(bench.log.complete(schema))
    version = DeltaTable(bench.folder(schema)).latest_version()
    bench.log.writer.close()
    bench.log = Log(bench.log.folder.with_name("other"), commit_us)
    bench.options = ApplyOptions(
        "other", bench.log.folder, bench.lake, settings=(("*", TableSettings(Mode.APPEND)),)
    )
    bench.target = DeltaTarget(bench.spark, bench.lake, "other")
    bench.log.write(table_of(2, name="first"), "+I(1,a)")
    begun = Applier(bench.options, bench.target)
    assert begun.begin().from_scn == 0
    bench.log.write(schema, "+I(1,a)")
    begun.process(0, bench.log.scn)
    begun.close()
    (error,) = begun.failing
    assert isinstance(error, MadeOtherwise)
    assert "made as mirror, and the file asks for append" in error.message
    assert begun.status.tables["public.first"].error is None
    assert DeltaTable(bench.folder(schema)).latest_version() == version


def test_a_block_of_several_transactions_gives_each_batch_its_own(bench: Bench) -> None:
    schema = named(Mode.APPEND)
    schema_id = bench.log.registry.put(schema)
    parsed = parse_history("+I(1,a) | T | +I(2,b)", 10)
    index = transaction_index(
        [(scn, commit_us(scn), scn, 1, ORIGIN_LOG, 1) for scn in (10, 11, 12)]
    )
    body = Body(schema_id, schema.table, change_batch(schema, parsed.rows))
    wipe = SystemEvent(11, 0, SystemKind.TRUNCATE, schema.table)
    bench.log.writer.append(Block(index, (body,), (wipe,), 12))
    bench.log.writer.sync()
    for end, told in ((10, ["+I"]), (11, ["+I", "T"]), (12, ["+I", "T", "+I"])):
        bench.run(end)
        held = DeltaTable(bench.folder(schema)).snapshot().to_table().to_pylist()
        assert [row["_op"] for row in held] == told
        at = pa.scalar(commit_us(end), pa.timestamp("us", "UTC")).as_py()
        assert held[-1]["_committed_at"] == at
