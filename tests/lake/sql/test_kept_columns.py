"""Columns that the source no longer has stay with their rows in a warehouse, wherever batches are cut."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import IncompatibleSchemaChange, TargetConflict
from headrace.lake.modes import Mode
from headrace.lake.policies import DEFAULTS, Dropped, Incompatible, Policies
from headrace.lake.sql.ledger import Entry
from headrace.lake.sql.session import Warehouse
from headrace.lake.sql.tables import WarehouseTables
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.testing.lives import Transaction
from headrace.testing.notation import table_of
from tests.lake.sql.kept_table import KeptInWarehouse
from tests.lake.sql.warehouses import KINDS, STAGES, content, made
from tests.lake.test_kept_columns import KEEPING, Change, Row, Source, folded_of, live_on
from tests.requirements import req

pytestmark = pytest.mark.postgres


@pytest.fixture(params=KINDS)
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    return made(request.param, request, tmp_path)


class Target:
    """The target table of a source whose columns come, go and change their types."""

    def __init__(self, warehouse: Warehouse, source: Source) -> None:
        self.warehouse = warehouse
        self.tables = WarehouseTables(warehouse, "test")
        self.scn = 0
        self.held = self.evolve(source.schema())

    def evolve(self, schema: TableSchema, policies: Policies = KEEPING) -> Entry:
        with self.warehouse.opened() as session:
            self.held = self.tables.evolve(session, schema, policies)
        return self.held

    def apply(self, schema: TableSchema, transactions: list[list[Change]], slices: int) -> None:
        """Commit transactions as one batch."""
        kept = [column for column in self.held.schema.columns if column.name in self.kept]
        whole = schema.keeping(kept)
        folded = folded_of(whole, schema, transactions, self.scn + 1, slices)
        self.scn += len(transactions)
        name = STAGES[self.warehouse.dialect.name]
        with self.warehouse.opened() as session, session.transaction():
            staged = self.tables.stage(session, whole, folded, name)
            self.held = self.tables.apply(session, whole, staged, self.scn, complete=True)

    def reshape(self, schema: TableSchema) -> None:
        """Follow a change of columns, and find that a new process reads the same and has nothing more to do."""
        held = self.evolve(schema)
        assert held.schema.schema_id == schema.schema_id
        self.tables = WarehouseTables(self.warehouse, "test")
        assert self.evolve(schema) == held

    @property
    def kept(self) -> frozenset[str]:
        return self.held.schema.kept

    def rows(self) -> list[Row]:
        rows: list[Row] = content(self.warehouse, self.held.schema).to_pylist()
        return rows


def live_through(warehouse: Warehouse, seed: int) -> None:
    source = Source(random.Random(seed))
    live_on(source, Target(warehouse, source), 4)


def live_many(warehouse: Warehouse, seeds: range) -> None:
    for seed in seeds:
        live_through(warehouse, seed)
        with warehouse.opened() as session:
            WarehouseTables(warehouse, "test").drop(session, TableId("public", "t"))


@req("C30")
def test_random_lives_keep_every_column_with_its_rows(warehouse: Warehouse) -> None:
    live_many(warehouse, range(2))


@pytest.mark.long
def test_many_random_lives_keep_every_column_with_its_rows(warehouse: Warehouse) -> None:
    live_many(warehouse, range(2, 150))


@req("C30")
@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.SOFT_DELETE, Mode.HISTORY])
def test_rows_of_other_modes_have_the_columns_of_their_time(
    warehouse: Warehouse, mode: Mode
) -> None:
    old = table_of(3)
    table = KeptInWarehouse(warehouse, old, mode)
    first, then = Transaction(10), Transaction(20)
    first.add("+I", (1, "a", "b"))
    first.add("+I", (2, "c", "d"))
    table.apply([first])
    other = replace(old.columns[2], type=pa.binary(), source_type="bytea")
    table.evolve(replace(old, columns=(*old.columns[:2], other)), KEEPING)
    then.add("+I" if mode is Mode.APPEND else "+R", (1, "x", "y"))
    table.apply([then])
    rows = content(warehouse, old).to_pylist()
    found = Counter((row["k"], row["c2_was_string"], row["c2"]) for row in rows)
    # What was before is kept as it was, where the mode keeps it.
    before = {} if mode is Mode.SOFT_DELETE else {(1, "b", None): 1}
    assert found == {(1, None, b"y"): 1, (2, "d", None): 1} | before


@req("C30")
def test_a_kept_column_that_a_person_drops_is_forgotten_and_any_other_is_missed(
    warehouse: Warehouse,
) -> None:
    source = Source(random.Random(1))
    target = Target(warehouse, source)
    target.apply(source.schema(), [[("+I", {"k": 1, "a": "x", "b": 2}, ["k", "a", "b"])]], 1)
    del source.columns["b"], source.numbers["b"]
    target.evolve(source.schema())
    assert target.kept == {"b"}
    place = warehouse.place(source.schema().table)

    def by_hand(statement: str) -> None:
        with warehouse.opened() as session, session.transaction():
            session.run(statement)

    by_hand(f"ALTER TABLE {place} DROP COLUMN b")
    target.evolve(source.schema())
    assert target.kept == frozenset()
    target.apply(source.schema(), [[("=U", {"k": 1, "a": "y"}, ["k", "a"])]], 1)
    assert target.rows() == [{"k": 1, "a": "y"}]
    by_hand(f"ALTER TABLE {place} DROP COLUMN a")
    with pytest.raises(TargetConflict, match="not those that headrace made"):
        target.apply(source.schema(), [[("=U", {"k": 1, "a": "z"}, ["k", "a"])]], 1)


def shape(*columns: Column, check: KeyCheck = KeyCheck.IMMEDIATE) -> TableSchema:
    key = () if check is KeyCheck.NONE else ("k",)
    return TableSchema(TableId("public", "t"), columns, key, check)


K = Column("k", pa.int64(), "bigint", nullable=False)
A = Column("a", pa.int64(), "bigint")
TEXT = replace(A, type=pa.string(), source_type="text")


@pytest.mark.parametrize(
    ("old", "new", "policies", "said"),
    [
        (shape(K, A), shape(K, TEXT), DEFAULTS, "t.a cannot be followed"),
        (
            shape(K, A),
            shape(replace(K, type=pa.string()), A),
            Policies(Incompatible.NEW_COLUMN),
            "t.k cannot be followed by the target table: is of the key",
        ),
        (
            shape(K, A, check=KeyCheck.NONE),
            shape(K, check=KeyCheck.NONE),
            Policies(dropped_column=Dropped.KEEP),
            "t.a cannot be followed by the target table: can be kept only where",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused_and_changes_nothing(
    warehouse: Warehouse, old: TableSchema, new: TableSchema, policies: Policies, said: str
) -> None:
    tables = WarehouseTables(warehouse, "test")
    with warehouse.opened() as session:
        before = tables.evolve(session, old)
        with pytest.raises(IncompatibleSchemaChange, match=said):
            tables.evolve(session, new, policies)
        assert tables.entry(session, old.table) == before
    assert content(warehouse, old).schema.names == old.names


def test_a_name_that_gets_too_long_when_its_column_is_put_aside_is_refused(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    warehouse = made("postgres", request, tmp_path)
    long = "x" * 60
    with warehouse.opened() as session:
        tables = WarehouseTables(warehouse, "test")
        tables.evolve(session, shape(K, replace(A, name=long)))
        with pytest.raises(IncompatibleSchemaChange, match="longer than the warehouse keeps"):
            tables.evolve(session, shape(K, replace(TEXT, name=long)), KEEPING)
    assert content(warehouse, shape(K)).schema.names == ["k", long]
