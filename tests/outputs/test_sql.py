"""Copies in a database: exactly once with their place, never back in time, and right for every kind of table."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.client import Batch, Result
from headrace.client.errors import CheckpointUnusable
from headrace.errors import MissingBase, TargetError
from headrace.lake.sql.postgres import PostgresWarehouse
from headrace.lake.sql.session import Session, Warehouse
from headrace.lake.sql.sqlite_file import SqliteWarehouse
from headrace.model.block import SystemEvent, SystemKind
from headrace.model.schema import KeyCheck, TableSchema
from headrace.outputs.sql import SqlOutput
from headrace.sources.scripted.database import MISSING, ScriptedDatabase, Transaction
from headrace.testing.histories import TABLES, RandomHistory
from headrace.testing.notation import change_batch, parse_history, table_of
from headrace.wire.place import Place
from tests.lake.sql.warehouses import MIRRORS, content, counted, made
from tests.outputs.windows import TABLE, window_of
from tests.requirements import req

Cells = tuple[Any, ...]


@pytest.fixture(params=MIRRORS)
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    return made(request.param, request, tmp_path)


def held(warehouse: Warehouse, schema: TableSchema = TABLE) -> Counter[tuple[object, ...]]:
    return counted(content(warehouse, schema, "copy"))


def tell(output: SqlOutput, scn: int, history: str, schema: TableSchema = TABLE) -> None:
    """Tell a window of one table's rows; ``T`` is a truncate, ``C`` at the end the completion of a dump."""
    output.on_start_window(window_of(scn))
    told = parse_history(history.removesuffix("C"), scn)
    if told.rows:
        output.on_data_batch(Batch(schema.table, schema, told.batch(schema)))
    for at, order in told.truncates:
        output.on_system_event(SystemEvent(at, order, SystemKind.TRUNCATE, schema.table))
    if history.endswith("C"):
        output.on_system_event(SystemEvent(scn, 99, SystemKind.DUMP_COMPLETE, schema.table))
    output.on_end_window(window_of(scn))


def started(warehouse: Warehouse) -> SqlOutput:
    output = SqlOutput(warehouse, "copy")
    output.load()
    output.on_start()
    return output


@req("D30", "D27")
def test_rows_and_place_are_there_together(warehouse):
    output = started(warehouse)
    assert output.load() is None
    tell(output, 5, "+I(1,a,b) +I(2,a,b)")
    tell(output, 6, "=U(1,c,?) -D(2,?,?)")
    assert output.on_checkpoint(Place(6)) is None
    assert held(warehouse) == Counter({(1, "c", "b"): 1})
    assert SqlOutput(warehouse, "copy").load() == Place(6)
    assert SqlOutput(warehouse, "another").load() is None


def test_a_place_can_be_stored_before_anything_else(warehouse):
    SqlOutput(warehouse, "copy").store(Place(3))
    assert SqlOutput(warehouse, "copy").load() == Place(3)


@req("D07")
def test_who_begins_anew_keeps_no_row_that_was_deleted_meanwhile(warehouse):
    output = started(warehouse)
    tell(output, 5, "+R(1,a,b) +R(2,gone,b) C")
    output.on_checkpoint(Place(5))
    tell(output, 6, "+I(3,not written,b)")
    # As a subscription does whose place no relay holds any more.
    output.on_rollback(Place(0))
    assert held(warehouse).total() == 2, "until the new place is stored the copy is what it was"
    output.store(Place(90))
    assert not held(warehouse)
    assert SqlOutput(warehouse, "copy").load() == Place(90)
    tell(output, 91, "=U(1,early,?)")
    output.on_checkpoint(Place(91))
    tell(output, 92, "+R(1,early,b) C")
    output.on_checkpoint(Place(92))
    assert held(warehouse) == Counter({(1, "early", "b"): 1})
    tell(output, 93, "=U(2,late,?)")
    with pytest.raises(MissingBase):
        output.on_checkpoint(Place(93))


def test_a_rewind_to_the_beginning_empties_nothing(warehouse):
    output = started(warehouse)
    tell(output, 5, "+R(1,a,b) C")
    output.on_checkpoint(Place(5))
    # As a subscription does that is told to begin again: the log has all of it.
    output.store(Place(0))
    output.on_rollback(Place(0))
    output.store(Place(3))
    output.on_rollback(Place(3))
    tell(output, 6, "=U(1,c,?)")
    output.on_checkpoint(Place(6))
    assert held(warehouse) == Counter({(1, "c", "b"): 1})


def test_who_was_rewound_to_the_beginning_and_begins_anew_keeps_no_row_either(warehouse):
    """The relays do not hold the beginning any more, as it turns out."""
    output = started(warehouse)
    tell(output, 5, "+R(1,gone,b) C")
    output.on_checkpoint(Place(5))
    output.store(Place(0))
    output.on_rollback(Place(0))
    output.on_rollback(Place(0))
    output.store(Place(90))
    assert not held(warehouse)


def test_a_dump_that_could_not_be_asked_for_empties_nothing(warehouse):
    output = started(warehouse)
    tell(output, 5, "+R(1,a,b) C")
    output.on_checkpoint(Place(5))
    output.on_rollback(Place(0))
    output.on_rollback(Place(5))
    tell(output, 6, "=U(1,c,?)")
    output.on_checkpoint(Place(6))
    output.store(Place(4))
    assert held(warehouse) == Counter({(1, "c", "b"): 1})


@req("N24")
def test_an_older_state_never_overwrites_a_newer_one(warehouse):
    output = started(warehouse)
    tell(output, 5, "+I(1,old,b)")
    tell(output, 6, "=U(1,new,?)")
    output.on_checkpoint(Place(6))
    tell(output, 7, "+I(8,not written,b)")
    output.store(Place(4))
    assert SqlOutput(warehouse, "copy").load() == Place(4)
    output.on_rollback(Place(4))
    tell(output, 5, "+I(1,old,b) +I(9,never,b)")
    output.on_checkpoint(Place(5))
    assert held(warehouse) == Counter({(1, "new", "b"): 1})
    tell(output, 6, "=U(1,new,?)")
    tell(output, 7, "=U(1,newest,?)")
    output.on_checkpoint(Place(7))
    assert held(warehouse) == Counter({(1, "newest", "b"): 1})


def test_what_was_not_written_is_forgotten_by_a_rollback(warehouse):
    output = started(warehouse)
    tell(output, 5, "+I(1,a,b)")
    output.on_checkpoint(Place(5))
    tell(output, 6, "+I(2,a,b)")
    output.on_rollback(Place(5))
    tell(output, 6, "+I(3,a,b)")
    output.on_checkpoint(Place(6))
    assert {row[0] for row in held(warehouse)} == {1, 3}


def test_a_truncate_empties_at_its_place(warehouse):
    output = started(warehouse)
    tell(output, 5, "+I(1,a,b) +I(2,a,b)")
    output.on_checkpoint(Place(5))
    tell(output, 6, "+I(3,a,b) T +I(4,a,b)")
    output.on_checkpoint(Place(6))
    assert held(warehouse) == Counter({(4, "a", "b"): 1})


def test_a_checkpoint_inside_a_window_is_refused(warehouse):
    output = started(warehouse)
    output.on_start_window(window_of(5))
    batch = parse_history("+I(1,a,b)", 5).batch(TABLE)
    output.on_data_batch(Batch(TABLE.table, TABLE, batch))
    assert output.on_checkpoint(Place(5, 0)) is Result.SKIP_CHECKPOINT
    output.on_end_window(window_of(5))
    output.on_checkpoint(Place(5))
    assert held(warehouse).total() == 1


def test_a_patch_without_its_row_is_an_error_once_the_dump_is_complete(warehouse):
    output = started(warehouse)
    tell(output, 5, "=U(1,early,?)")
    output.on_checkpoint(Place(5))
    tell(output, 6, "+R(1,early,b) C")
    output.on_checkpoint(Place(6))
    assert held(warehouse) == Counter({(1, "early", "b"): 1})
    output = started(warehouse)
    tell(output, 7, "+I(3,a,b) =U(2,late,?)")
    with pytest.raises(MissingBase):
        output.on_checkpoint(Place(7))
    assert held(warehouse) == Counter({(1, "early", "b"): 1}), "nothing of the window was written"
    assert SqlOutput(warehouse, "copy").load() == Place(6)


def test_a_table_that_gets_a_column_goes_on(warehouse):
    output = started(warehouse)
    narrow, wide = table_of(2, name="orders"), table_of(3, name="orders")
    tell(output, 5, "+I(1,a)", narrow)
    output.on_checkpoint(Place(5))
    tell(output, 6, "+I(2,a)", narrow)
    tell(output, 7, "+I(3,a,b)", wide)
    output.on_checkpoint(Place(7))
    assert held(warehouse, wide) == Counter(
        {(1, "a", None): 1, (2, "a", None): 1, (3, "a", "b"): 1}
    )


@pytest.mark.parametrize("anew", [False, True])
def test_two_of_one_name_never_write_over_each_other(database, anew):
    """One was about to write what another has written meanwhile: a process that was killed, and whose end came late."""
    warehouse = PostgresWarehouse(database)
    bag = table_of(2, check=KeyCheck.NONE, name="bag")
    if not anew:
        output = started(warehouse)
        tell(output, 5, "+I(1,a)", bag)
        output.on_checkpoint(Place(5))

    class Late(SqlOutput):
        def _commit(self, session: Session, held: Any, works: Any) -> None:
            if not other.load() or other.load() == Place(5):
                for scn in (6, 7):
                    tell(other, scn, "+I(1,a)", bag)
                other.on_checkpoint(Place(7))
            super()._commit(session, held, works)

    other, late = started(warehouse), Late(warehouse, "copy")
    late.load()
    late.on_start()
    for scn in (6, 7, 8):
        tell(late, scn, "+I(1,a)", bag)
    with pytest.raises(CheckpointUnusable, match="changed by somebody else"):
        late.on_checkpoint(Place(8))
    # As a subscription goes on whose callback failed.
    assert late.load() == Place(7)
    late.on_rollback(Place(7))
    tell(late, 8, "+I(1,a)", bag)
    late.on_checkpoint(Place(8))
    assert held(warehouse, bag) == Counter({(1, "a"): 3 if anew else 4})
    tell(other, 8, "+I(1,a)", bag)
    with pytest.raises(CheckpointUnusable, match="changed by somebody else"):
        other.on_checkpoint(Place(8))


@dataclass(frozen=True)
class CutOff:
    """A warehouse whose connection breaks before some statement."""

    inner: Warehouse
    left: list[int]

    @property
    def dialect(self) -> Any:
        return self.inner.dialect

    def place(self, table: Any) -> Any:
        return self.inner.place(table)

    def refusal(self, error: Exception, what: str) -> Any:
        return self.inner.refusal(error, what)

    @contextmanager
    def opened(self, *, read_only: bool = False) -> Iterator[Session]:
        with self.inner.opened(read_only=read_only) as session:
            yield _CutSession(session, self.left)


class _CutSession:
    def __init__(self, inner: Session, left: list[int]) -> None:
        self._inner, self._left = inner, left

    def _count(self) -> None:
        self._left[0] -= 1
        if self._left[0] == 0:
            raise OSError("cut off")

    def run(self, text: str, *, own: bool = False) -> int:
        self._count()
        return self._inner.run(text, own=own)

    def rows(self, text: str) -> Any:
        return self._inner.rows(text)

    def transaction(self) -> AbstractContextManager[object]:
        return self._inner.transaction()

    def stage(self, name: str, rows: Any) -> None:
        self._count()
        self._inner.stage(name, rows)

    def unstage(self, name: str) -> None:
        self._count()
        self._inner.unstage(name)

    def read(self, place: Any, schema: TableSchema) -> Any:
        return self._inner.read(place, schema)


@req("N24")
def test_rows_and_place_come_together_or_not_at_all(warehouse):
    left = [10**9]
    output = started(CutOff(warehouse, left))
    tell(output, 1, "+I(1,0,b)")
    output.on_checkpoint(Place(1))
    broken = 0
    for statement in range(1, 20):
        left[0] = statement
        tell(output, 2, "=U(1,new,?)")
        try:
            output.on_checkpoint(Place(2))
        except TargetError:
            broken += 1
            assert SqlOutput(warehouse, "copy").load() == Place(1)
            assert held(warehouse) == Counter({(1, "0", "b"): 1}), f"statement {statement}"
            output.on_rollback(Place(1))
        else:
            break
    assert broken > 2
    assert held(warehouse) == Counter({(1, "new", "b"): 1})


def window(output: SqlOutput, transaction: Transaction) -> None:
    """Tell one transaction of a scripted database."""
    scn = transaction.scn
    output.on_start_window(window_of(scn))
    for schema in TABLES:
        rows = [
            (scn, order, c.op, tuple("?" if cell is MISSING else cell for cell in c.cells))
            for order, c in enumerate(transaction.changes)
            if c.table == schema.table and c.op != "T"
        ]
        if rows:
            output.on_data_batch(Batch(schema.table, schema, change_batch(schema, rows)))
    for order, change in enumerate(transaction.changes):
        if change.op == "T":
            event = SystemEvent(scn, order, SystemKind.TRUNCATE, change.table)
            output.on_system_event(event)
    output.on_end_window(window_of(scn))


@req("N24", "H17")
@pytest.mark.parametrize("seed", range(3))
def test_every_kind_of_table_ends_as_its_source_wherever_the_connection_breaks(warehouse, seed):
    rng = random.Random(seed)
    database = ScriptedDatabase(TABLES)
    life = RandomHistory(database, rng, Counter())
    for _ in range(150):
        life.step()
    life.settle()
    left = [10**9]
    output, begun, breaks = started(CutOff(warehouse, left)), 0, 0
    at = 0
    for schema in TABLES:
        # The tables are empty, so their dumps are complete from the beginning.
        output.on_system_event(SystemEvent(1, 0, SystemKind.DUMP_COMPLETE, schema.table))
    output.on_checkpoint(Place(1))
    while at < len(database.log):
        window(output, database.log[at])
        at += 1
        if rng.random() < 0.6 and at < len(database.log):
            continue
        left[0] = rng.choice([10**9, rng.randrange(1, 12)])
        try:
            output.on_checkpoint(Place(database.log[at - 1].scn))
            begun = at
        except Exception:  # noqa: BLE001 - whatever the driver makes of it, everything comes again
            breaks += 1
            left[0] = 10**9
            output = started(CutOff(warehouse, left))
            place = output.load()
            assert place is not None
            begun = next(
                n
                for n in range(len(database.log) + 1)
                if n == len(database.log) or database.log[n].scn > place.scn
            )
            # A subscription may begin earlier than it must.
            at = max(0, begun - rng.choice((0, 0, 2)))
    assert breaks > 2
    truth = database.state_at(database.log[-1].scn)
    for schema in TABLES:
        if any(change.table == schema.table for t in database.log for change in t.changes):
            assert held(warehouse, schema) == +truth[schema.table], schema.table


def dumped(output: SqlOutput, scn: int, first_scn: int, kind: SystemKind) -> None:
    """Tell of a table's gap, or of its dump's end, in a window of its own, and have it written."""
    output.on_start_window(window_of(scn))
    payload = {"first_scn": first_scn} if kind is SystemKind.DUMP_COMPLETE else {}
    output.on_system_event(SystemEvent(scn, 0, kind, TABLES[0].table, payload))
    output.on_end_window(window_of(scn))
    output.on_checkpoint(Place(scn))


@req("B-11")
@pytest.mark.parametrize(("first_scn", "whole"), [(3, False), (0, False), (6, True)])
def test_a_dump_that_had_begun_before_makes_nothing_whole(tmp_path, first_scn, whole):
    """Whoever begins at the newest place has no row that a dump read before, and a repair brings none."""
    patchy = TABLES[0]
    output = SqlOutput(SqliteWarehouse(tmp_path / "copy.db"), "copy")
    assert output.load() is None
    output.store(Place(5))
    output.on_start()
    tell(output, 6, "+R(2,a,b)", patchy)
    dumped(output, 7, first_scn, SystemKind.DUMP_COMPLETE)
    again = SqlOutput(SqliteWarehouse(tmp_path / "copy.db"), "copy")
    again.load()
    again.on_start()
    for scn, kind in ((8, SystemKind.GAP), (9, SystemKind.DUMP_COMPLETE)):
        dumped(again, scn, 0, kind)
    tell(again, 10, "=U(9,c,?)", patchy)
    if whole:
        # So it is behind a repair, as it was ahead of the gap.
        with pytest.raises(MissingBase):
            again.on_checkpoint(Place(10))
    else:
        again.on_checkpoint(Place(10))
        assert again.load() == Place(10)
