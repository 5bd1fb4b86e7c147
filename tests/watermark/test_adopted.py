"""Tables whose first copy is made elsewhere: capture follows them, reads nothing, and says when they are complete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from headrace.changelog import ChangeLogReader
from headrace.model.block import ORIGIN_LOG, Block, SystemEvent, SystemKind, transaction_index
from headrace.model.schema import TableId
from headrace.relay.capture import Capture
from headrace.relay.recovery import begin_again
from headrace.replicator.copies import ask_for_copy
from headrace.sources.base import CatalogEntry, CatalogLook
from headrace.sources.scripted.database import Change
from headrace.state.records import Cause, RequestState, Scope
from headrace.state.store import StateStore
from headrace.testing.scripted import run_dry, scripted_capture
from headrace.watermark.catalog import Catalog
from headrace.watermark.tasks import TaskQueue
from tests.requirements import req
from tests.scenarios.crashing_log import open_log
from tests.watermark.machine import ONE, THREE, TWO, Machine

TABLES = (ONE.table, TWO.table)


def only_one(table: TableId) -> bool:
    return table == ONE.table


@contextmanager
def capture(machine: Machine) -> Iterator[tuple[Capture, StateStore]]:
    log, lose = open_log(machine.folder)
    try:
        with machine.state() as state:
            made = scripted_capture(
                *(machine.source, machine.folder, log, state, machine.dump), adopted=only_one
            )
            made.start()
            yield made, state
    finally:
        lose()


def insert(machine: Machine, key: int) -> int:
    database = machine.database
    transaction = database.begin()
    transaction.changes.append(Change(ONE.table, "+I", (key, "new")))
    transaction.puts.append((ONE.table, "add", (key, "new")))
    scn = database.commit(transaction)
    database.reveal(transaction)
    return scn


def blocks(machine: Machine) -> list[Block]:
    return list(ChangeLogReader(machine.folder / "changelog").blocks(0))


@req("D34")
def test_a_table_that_is_filled_elsewhere_is_followed_and_never_read(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with capture(machine) as (made, state):
        insert(machine, 50)
        assert run_dry(made, state)
        assert {r.table for r in state.requests()} == {TWO.table, THREE.table}
        assert state.since(ONE.table) == 0
        assert state.since(TWO.table) is None
        state.submit(Scope.TABLE, ONE.table, priority=100, cause=Cause.ADOPTED)
        assert run_dry(made, state)
        copy = state.copies()[ONE.table]
        assert (copy.request.state, copy.progress.state) == (RequestState.COMPLETED, "done")
        assert copy.progress.chunks == copy.progress.rows_read == 0
    ends = [
        (event.table, event.scn)
        for block in blocks(machine)
        for event in block.system
        if event.kind is SystemKind.DUMP_COMPLETE
    ]
    assert (ONE.table, copy.progress.completed_scn) in ends
    assert machine.ops(ONE) == [("+I", 50, "new")]
    # Nor does the next start read it.
    with capture(machine) as (made, state):
        assert run_dry(made, state)
        assert len([r for r in state.requests() if r.table == ONE.table]) == 1


@req("D34")
def test_a_mark_that_comes_later_notes_what_the_log_covers_by_then(tmp_path: Path) -> None:
    """The log has all of a table that was captured before it was marked, but nobody knows from where on."""
    machine = Machine(tmp_path)
    with capture(machine) as (made, state):
        insert(machine, 50)
        assert run_dry(made, state)
        covered = blocks(machine)[-1].covered_scn
        state.write([lambda w: w.set("since.public.one", "")])
    with capture(machine) as (_, state):
        assert state.since(ONE.table) == covered


@req("D34", "P55")
def test_a_resync_leaves_a_table_that_awaits_its_dump_to_that(tmp_path: Path) -> None:
    """Rows from before the gap are refused by its position; the others are read again."""
    machine = Machine(tmp_path)
    with capture(machine) as (made, state):
        assert run_dry(made, state)
    log, lose = open_log(tmp_path)
    with machine.state() as state:
        life = begin_again(machine.source, log, state, [*TABLES], awaiting=[ONE.table])
        asked = [r.table for r in state.requests() if r.cause is Cause.GAP]
    lose()
    assert asked == [TWO.table]
    assert life.since_scn > 0
    events = [event for block in blocks(machine) for event in block.system]
    assert {e.table for e in events if e.kind is SystemKind.GAP} == {TWO.table}


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateStore]:
    with closing(StateStore(tmp_path / "state.db")) as store:
        yield store


def written(state: StateStore, queue: TaskQueue) -> None:
    state.write(queue.take_pending())


@req("D34")
def test_only_its_first_copy_is_made_elsewhere(state: StateStore) -> None:
    """What makes a table need another copy later is dumped by headrace."""
    queue = TaskQueue(state, TABLES, adopted=only_one)
    queue.ensure_dumped()
    queue.copy_again(ONE.table)
    queue.add(ONE.table)
    assert [r.table for r in state.requests()] == [TWO.table]
    state.submit(Scope.TABLE, ONE.table, cause=Cause.ADOPTED)
    # A dump that the table needs is another request than that of the adoption, which reads no row.
    queue.copy_again(ONE.table)
    assert [r.cause for r in state.requests() if r.table == ONE.table] == [
        Cause.ADOPTED,
        Cause.FILLED,
    ]


@req("D34")
def test_a_table_that_is_copied_again_is_not_filled_by_an_adoption(
    tmp_path: Path, state: StateStore
) -> None:
    adoption = state.submit(Scope.TABLE, ONE.table, cause=Cause.ADOPTED)
    assert ask_for_copy(tmp_path / "state.db", ONE.table, "") != adoption


@req("D34")
def test_a_position_counts_from_where_the_log_has_all_of_a_table(state: StateStore) -> None:
    queue = TaskQueue(state, TABLES, adopted=only_one)
    assert queue.not_noted() == [ONE.table]
    assert queue.not_noted([TWO.table]) == []
    queue.whole_from(70, TABLES)
    assert state.since(ONE.table) is None
    written(state, queue)
    assert (state.since(ONE.table), state.since(TWO.table)) == (70, None)
    assert queue.not_noted() == []
    state.submit(Scope.TABLE, ONE.table, cause=Cause.ADOPTED)
    queue.whole_from(90, TABLES)
    written(state, queue)
    assert state.since(ONE.table) == 70


@req("D34")
def test_what_the_log_does_not_carry_has_to_lie_in_the_dump(tmp_path: Path) -> None:
    """A column that the source fills in silence: of other tables a dump is queued, of these a later position needed."""
    machine = Machine(tmp_path)
    with capture(machine) as (made, state):
        assert run_dry(made, state)
        assert made.coordinator is not None
        scn = machine.database.log[-1].scn + 10
        payload = {"schema_id": ONE.schema_id, "needs_dump": True}
        event = SystemEvent(scn, 0, SystemKind.SCHEMA, ONE.table, payload)
        index = transaction_index([(scn, 0, 900, 0, ORIGIN_LOG, 1)])
        made.coordinator.observe(Block(index, (), (event,), scn))
        state.write(made.coordinator.take_pending())
        assert state.since(ONE.table) == scn
        assert {r.table for r in state.requests()} == {TWO.table, THREE.table}


def test_a_look_queues_nothing_for_a_table_that_awaits_its_dump(state: StateStore) -> None:
    catalog, queue = Catalog(state), TaskQueue(state, TABLES, adopted=only_one)
    entry = CatalogEntry(ONE.table, "1|")
    look = CatalogLook(tables={"7": entry}, schemas={}, joined=frozenset({"7"}))
    state.write(catalog.work_off(look, queue))
    again = CatalogLook(tables={"7": entry}, schemas={}, restated=frozenset({"7"}))
    state.write(catalog.work_off(again, queue))
    assert state.requests() == []
