"""A new copy of a table takes its place in one transaction, and what a crash leaves of it does no harm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import TargetConflict
from headrace.fold import fold
from headrace.lake.copies import Copy, CopyNeeded
from headrace.lake.policies import Incompatible, Policies
from headrace.lake.sql.ledger import LEDGER, Entry, copy_place
from headrace.lake.sql.postgres import PostgresWarehouse
from headrace.lake.sql.session import Session, Warehouse, told
from headrace.lake.sql.tables import WarehouseTables
from headrace.model.schema import Column, KeyCheck, TableSchema
from headrace.model.succession import Numbers
from headrace.testing.notation import change_batch, parse_history, table_of
from tests.lake.sql.warehouses import KINDS, STAGES, TRANSACTIONAL, content, made
from tests.requirements import req

pytestmark = pytest.mark.postgres

RECOPY = Policies(incompatible=Incompatible.RECOPY)
OLD = replace(table_of(3), numbers={"k": 1, "c1": 2, "c2": 3})
NEW = replace(OLD, columns=(*OLD.columns[:2], replace(OLD.columns[2], type=pa.binary())))
PLACE = OLD.table
OLD_ROWS = [{"k": key, "c1": f"a{key}", "c2": f"b{key}"} for key in (1, 2, 3)]
NEW_ROWS = [{"k": 1, "c1": "x", "c2": b"9"}, {"k": 4, "c1": "a4", "c2": b"40"}]


class Crash(BaseException):
    """The process ends here."""


class Mortal:
    """A session that ends with its process before some statement."""

    def __init__(self, session: Session, left: int) -> None:
        self._session = session
        self.left = left
        self.rows = session.rows
        self.transaction = session.transaction

    def run(self, text: str, *, own: bool = False) -> int:
        if not self.left:
            raise Crash
        self.left -= 1
        return self._session.run(text, own=own)


class Pair:
    """A table that is at SCN 10, and what is done to it and its copy, each in a session of its own."""

    def __init__(self, warehouse: Warehouse, old: TableSchema = OLD) -> None:
        self.warehouse = warehouse
        self.old = old
        self.tables = WarehouseTables(warehouse, "test")
        with self.session() as session:
            self.tables.evolve(session, old)
        self.apply(old, "+I(1,a1,b1) +I(2,a2,b2) +I(3,a3,b3)", 10)

    @contextmanager
    def session(self) -> Iterator[Session]:
        with told(self.warehouse, PLACE), self.warehouse.opened() as session:
            yield session

    def apply(self, schema: TableSchema, history: str, scn: int) -> Entry:
        rows = fold(schema, [change_batch(schema, parse_history(history).rows)])
        with self.session() as session, session.transaction():
            staged = self.tables.stage(session, schema, rows, STAGES[self.warehouse.dialect.name])
            return self.tables.apply(session, schema, staged, scn, complete=False)

    def evolve(self, schema: TableSchema) -> Entry:
        with self.session() as session:
            return self.tables.evolve(session, schema, RECOPY)

    def begin(self, schema: TableSchema = NEW, copy: Copy | None = None) -> Entry:
        with self.session() as session:
            return self.tables.begin_copy(session, schema, copy or Copy("asked", 20))

    def end(self) -> Entry:
        with self.session() as session:
            return self.tables.end_copy(session, PLACE)

    def filled(self, schema: TableSchema = NEW) -> None:
        self.begin(schema)
        self.apply(schema, "+R(1,a1,10) +R(2,a2,20) +I(4,a4,40)", 30)
        self.apply(schema, "-D(2) =U(1,x,9)", 40)

    def dying(self, left: int, do: Callable[[Any], object]) -> bool:
        """Do something in a process that ends before some statement; return whether it ended."""
        try:
            with self.session() as session:
                do(Mortal(session, left))
        except Crash:
            return True
        return False

    def entry(self) -> Entry | None:
        with self.session() as session:
            return WarehouseTables(self.warehouse, "test").entry(session, PLACE)

    def shown(self) -> tuple[list[dict[str, Any]], int]:
        """Return the rows that readers see, and the SCN that the ledger says of them."""
        with self.warehouse.opened(read_only=True) as session:
            ((table, entry),) = self.tables.entries(session).items()
            assert table == PLACE
            batches = list(self.tables.rows(session, PLACE, entry))
        rows = [row for batch in batches for row in batch.to_pylist()]
        return sorted(rows, key=lambda row: row["k"]), entry.applied_scn

    def run(self, *statements: str) -> None:
        with self.session() as session:
            for statement in statements:
                session.run(statement)

    def names(self) -> set[str]:
        """Return the tables of the ledger's schema, and what the ledger has rows of."""
        query = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'headrace'"
        with self.session() as session:
            rows = session.rows(f"{query} UNION ALL SELECT table_name FROM headrace.ledger")
        return {name for (name,) in rows}


@pytest.fixture(params=KINDS)
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    return made(request.param, request, tmp_path)


@req("C12", "C30", "C43")
def test_rows_columns_and_position_change_together(warehouse: Warehouse) -> None:
    pair = Pair(warehouse)
    with pytest.raises(CopyNeeded, match=r"public\.t\.c2 changed from string to binary"):
        pair.evolve(NEW)
    held = pair.begin()
    assert (held.applied_scn, held.copy) == (20, Copy("asked", 20))
    pair.apply(NEW, "+R(1,a1,10) +R(2,a2,20) +I(4,a4,40)", 30)
    assert pair.entry() == pair.evolve(NEW)
    copy = pair.apply(NEW, "-D(2) =U(1,x,9)", 40)
    assert pair.shown() == (OLD_ROWS, 10)
    assert content(warehouse, NEW).num_rows == 2
    ended = pair.end()
    assert pair.shown() == (NEW_ROWS, 40)
    assert pair.entry() == ended == replace(copy, version=ended.version, copy=None)
    # A position that grows is all that a restart knows a table by.
    assert ended.version > copy.version > held.version > 1
    assert pair.names() == {LEDGER.name, PLACE.name}
    if isinstance(warehouse, PostgresWarehouse):
        with pair.session() as session:
            unique = "SELECT conkey::text FROM pg_constraint WHERE conname LIKE 'headrace_key_%'"
            assert session.rows(unique) == [("{1}",)]
    # The table goes on as any other: keys are found, columns come and go.
    pair.apply(NEW, "=U(1,y,8) +R(4,z,7)", 50)
    wide = replace(NEW, columns=(*NEW.columns, Column("c3", pa.string(), "text")))
    pair.evolve(replace(wide, numbers={**NEW.numbers, "c3": 4}))
    assert pair.shown()[0][0] == {"k": 1, "c1": "y", "c2": b"8", "c3": None}
    assert pair.shown()[0][1]["c1"] == "z"


@req("C12", "C43")
@pytest.mark.parametrize("warehouse", TRANSACTIONAL, indirect=True)
def test_a_crash_between_any_two_statements_leaves_the_one_or_the_other(
    warehouse: Warehouse,
) -> None:
    pair = Pair(warehouse)
    before = pair.entry()
    steps = 0
    while pair.dying(steps, lambda s: pair.tables.begin_copy(s, NEW, Copy("asked", 20))):
        assert (pair.entry(), pair.shown()) == (before, (OLD_ROWS, 10))
        assert pair.names() == {LEDGER.name, PLACE.name}
        steps += 1
    assert steps > 3
    pair.apply(NEW, "+R(1,x,9) +R(4,a4,40)", 40)
    copy = pair.entry()
    steps = 0
    while pair.dying(steps, lambda s: pair.tables.end_copy(s, PLACE)):
        assert (pair.entry(), pair.shown()) == (copy, (OLD_ROWS, 10))
        steps += 1
    assert steps > 7
    assert pair.shown() == (NEW_ROWS, 40)


def test_another_request_and_another_type_begin_again(warehouse: Warehouse) -> None:
    pair = Pair(warehouse)
    pair.filled()
    with pair.session() as session:
        asked = pair.tables.ask_again(session, PLACE, "again")
    assert pair.entry() == asked
    assert (asked.copy, asked.applied_scn) == (Copy("again", 20), 40)
    pair.apply(NEW, "+I(5,a5,50)", 45)
    narrow = replace(NEW, columns=(*NEW.columns[:2], replace(NEW.columns[2], type=pa.bool_())))
    with pytest.raises(CopyNeeded):
        pair.evolve(narrow)
    # Back to what the table has: the copy is one all the same.
    held = pair.begin(OLD, Copy("third", 50))
    assert (held.applied_scn, held.numbers) == (50, OLD.numbers)
    assert held.version > asked.version
    pair.apply(OLD, "+R(7,g,h)", 60)
    assert pair.shown() == (OLD_ROWS, 10)
    pair.end()
    assert pair.shown() == ([{"k": 7, "c1": "g", "c2": "h"}], 60)


@pytest.mark.parametrize("numbers", [OLD.numbers, {}])
def test_every_column_may_be_another_the_key_too(warehouse: Warehouse, numbers: Numbers) -> None:
    pair = Pair(warehouse)
    turned = replace(
        OLD,
        columns=(
            Column("c1", pa.int64(), "int8"),
            Column("K 2", pa.string(), "text"),
            Column("c3", pa.string(), "text"),
        ),
        key=("c1", "K 2"),
        numbers={"c1": 1, "K 2": 5, "c3": 6} if numbers else {},
    )
    pair.begin(turned)
    pair.apply(turned, "+R(1,a,b) +R(1,c,d)", 30)
    assert pair.end().numbers == turned.numbers
    pair.apply(turned, "-D(1,a,?) +R(1,c,e)", 40)
    assert content(warehouse, turned).to_pylist() == [{"c1": 1, "K 2": "c", "c3": "e"}]


def test_a_table_of_one_column_and_no_key_takes_its_copys_rows(warehouse: Warehouse) -> None:
    old = table_of(1, check=KeyCheck.NONE)
    tables = WarehouseTables(warehouse, "test")
    new = replace(old, columns=(replace(old.columns[0], type=pa.string()),))
    with warehouse.opened() as session:
        tables.evolve(session, old)
        tables.begin_copy(session, new, Copy("asked", 5))
        rows = fold(new, [change_batch(new, [(9, 0, "+I", ("a",)), (9, 1, "+I", ("a",))])])
        with session.transaction():
            staged = tables.stage(session, new, rows, STAGES[warehouse.dialect.name])
            tables.apply(session, new, staged, 9, complete=False)
        tables.end_copy(session, PLACE)
    assert content(warehouse, new).to_pylist() == [{"k": "a"}] * 2


def test_views_and_rights_that_people_gave_stay_with_the_table(warehouse: Warehouse) -> None:
    pair = Pair(warehouse)
    pair.run("CREATE VIEW public.seen AS SELECT k, c1 FROM public.t")
    if isinstance(warehouse, PostgresWarehouse):
        pair.run("GRANT SELECT ON public.t TO pg_monitor")
    pair.filled()
    pair.end()
    with pair.session() as session:
        assert sorted(session.rows("SELECT * FROM public.seen")) == [(1, "x"), (4, "a4")]
        if isinstance(warehouse, PostgresWarehouse):
            granted = "SELECT has_table_privilege('pg_monitor', 'public.t', 'SELECT')"
            assert session.rows(granted) == [(True,)]


def test_what_is_in_the_way_leaves_the_old_table_and_goes_on_once_it_is_gone(
    warehouse: Warehouse,
) -> None:
    pair = Pair(warehouse)
    pair.filled()
    pair.run("ALTER TABLE public.t ADD COLUMN mine text")
    with pytest.raises(TargetConflict, match="not those that headrace made"):
        pair.end()
    pair.run("ALTER TABLE public.t DROP COLUMN mine")
    if isinstance(warehouse, PostgresWarehouse):
        pair.run("CREATE VIEW public.seen AS SELECT k, c2 FROM public.t")
        with pytest.raises(TargetConflict, match="something else depends on it"):
            pair.end()
        pair.run("DROP VIEW public.seen")
    assert pair.shown() == (OLD_ROWS, 10)
    pair.end()
    assert pair.shown() == (NEW_ROWS, 40)


def test_a_table_that_is_dropped_takes_its_copy_along(warehouse: Warehouse) -> None:
    pair = Pair(warehouse)
    pair.filled()
    with pair.session() as session:
        pair.tables.drop(session, PLACE)
    assert (pair.entry(), pair.names()) == (None, {LEDGER.name})


def test_a_table_that_a_person_took_away_is_made_anew_without_the_copy(
    warehouse: Warehouse,
) -> None:
    pair = Pair(warehouse)
    pair.filled()
    pair.run("DROP TABLE public.t", "DELETE FROM headrace.ledger WHERE table_name = 't'")
    assert pair.entry() is None
    with pytest.raises(TargetConflict, match=r"row of public\.t vanished"):
        pair.end()
    made_anew = pair.evolve(NEW)
    assert (made_anew.copy, made_anew.applied_scn, pair.entry()) == (None, 0, made_anew)
    assert pair.names() == {LEDGER.name, PLACE.name}


def test_copies_of_two_pipelines_are_two() -> None:
    names = {copy_place(pipeline, PLACE).name for pipeline in ("test", "other")}
    assert len(names) == 2
    # As long as any name may be.
    assert all(len(name) < 63 for name in names)
