"""What looks at the catalog do to requests that people steer, and to tables with a gap."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.model.block import SystemEvent, SystemKind
from headrace.model.schema import TableId
from headrace.sources.base import CatalogEntry, CatalogLook
from headrace.state.records import OPEN, Cause, RequestState
from headrace.state.store import Scope, StateStore
from headrace.watermark.catalog import Catalog, forget_catalog
from headrace.watermark.tasks import TaskQueue
from tests.requirements import req
from tests.watermark.machine import ONE, THREE, TWO

TABLES = (ONE.table, TWO.table)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateStore]:
    with contextlib.closing(StateStore(tmp_path / "state.db")) as store:
        yield store


def written(state: StateStore, queue: TaskQueue) -> None:
    state.write(queue.take_pending())


def open_requests(state: StateStore) -> list[TableId | None]:
    return [request.table for request in state.requests() if request.state in OPEN]


@req("N08", "C30")
def test_a_look_copies_no_table_whose_copy_a_person_cancelled(state: StateStore) -> None:
    queue = TaskQueue(state, TABLES)
    queue.ensure_dumped()
    queue.current()
    written(state, queue)
    state.move(state.requests()[0].request_id, RequestState.CANCELLED, since=OPEN)
    queue.current()
    written(state, queue)

    queue.copy_again(ONE.table)
    queue.add(TWO.table)
    queue.add(THREE.table)
    queue.ensure_dumped(TABLES)
    assert open_requests(state) == [THREE.table]


@req("C30")
def test_a_table_that_came_while_capture_ran_was_not_left_out(state: StateStore) -> None:
    queue = TaskQueue(state, TABLES)
    queue.ensure_dumped()
    queue.add(THREE.table)
    written(state, queue)
    assert TaskQueue(state, [*TABLES, THREE.table]).returned() == set()


@req("N08", "C30")
@pytest.mark.parametrize("begun", [True, False])
def test_a_table_that_goes_ends_its_paused_dump_and_no_other(
    state: StateStore, begun: bool
) -> None:
    queue = TaskQueue(state, TABLES)
    paused = state.submit(Scope.TABLE, ONE.table)
    if begun:
        queue.current()
        written(state, queue)
    state.move(paused, RequestState.PAUSED, since=OPEN)
    state.submit(Scope.TABLE, TWO.table)
    task = queue.current()
    assert task is None or task.progress.table == TWO.table
    written(state, queue)

    queue.give_up(ONE.table, "it was dropped.")
    written(state, queue)
    ended = state.request(paused)
    assert ended is not None
    assert (ended.state, ended.reason) == (RequestState.FAILED, "it was dropped.")
    assert state.copies()[ONE.table].progress.state == "dropped"
    still = queue.current()
    assert still is not None
    assert still.progress.table == TWO.table
    if task is not None:
        assert still is task


@req("C30")
def test_a_copy_that_failed_before_the_log_told_why_is_of_a_dropped_table(
    state: StateStore,
) -> None:
    queue = TaskQueue(state, TABLES)
    state.submit(Scope.TABLE, ONE.table, cause=Cause.FIRST_COPY)
    task = queue.current()
    assert task is not None
    queue.fail(task, "there is no such table.")
    written(state, queue)
    assert state.copies()[ONE.table].progress.state == "failed"
    queue.give_up(ONE.table, "it was dropped.")
    assert state.copies()[ONE.table].progress.state == "dropped"


@req("P55", "C30")
def test_a_table_that_goes_takes_its_gap_along(state: StateStore) -> None:
    state.write([lambda w: w.set_gap(ONE.table, open_=True)])
    queue = TaskQueue(state, TABLES)
    queue.ensure_dumped([ONE.table])
    assert open_requests(state) == []

    state.submit(Scope.REPAIR, ONE.table, cause=Cause.GAP)
    queue.give_up(ONE.table, "it was dropped.")
    written(state, queue)
    assert (queue.gaps, state.gaps(), open_requests(state)) == (set(), set(), [])


ONE_AS_SEEN = CatalogEntry(ONE.table, "1|")
HELD = CatalogLook(tables={"7": ONE_AS_SEEN}, schemas={"9": "shop"})


def never(_: TableId) -> bool:
    return False


def heard(kind: SystemKind, table: TableId, **payload: str) -> SystemEvent:
    return SystemEvent(50, 0, kind, table, payload)


def knowing(state: StateStore, look: CatalogLook) -> tuple[Catalog, TaskQueue]:
    catalog, queue = Catalog(state), TaskQueue(state, [ONE.table])
    catalog.ask(queue.tables)
    state.write(catalog.work_off(look, queue))
    return catalog, queue


@req("A-11", "P33")
@pytest.mark.parametrize(
    "event",
    [
        heard(SystemKind.DROP_TABLE, ONE.table, identity="7"),
        heard(SystemKind.RENAME_TABLE, ONE.table, identity="7", to="public.other"),
        heard(SystemKind.DROP_SCHEMA, TableId("shop", ""), identity="9"),
        heard(SystemKind.CREATE_SCHEMA, TableId("new", ""), identity="10"),
        heard(SystemKind.RENAME_SCHEMA, TableId("shop", ""), identity="9", to="store"),
    ],
    ids=lambda event: event.kind.value,
)
def test_a_look_from_before_the_log_spoke_takes_nothing_back(
    state: StateStore, event: SystemEvent
) -> None:
    catalog, queue = knowing(state, HELD)
    now = CatalogLook(
        tables={"7": ONE_AS_SEEN} if event.payload["identity"] != "7" else {},
        schemas={
            SystemKind.DROP_SCHEMA: {},
            SystemKind.CREATE_SCHEMA: {"9": "shop", "10": "new"},
            SystemKind.RENAME_SCHEMA: {"9": "store"},
        }.get(event.kind, {"9": "shop"}),
    )

    catalog.ask(queue.tables)
    catalog.note(event)
    assert catalog.told(HELD, never) == []
    state.write(catalog.work_off(HELD, queue))

    catalog.ask(queue.tables)
    assert catalog.told(now, never) == []


@req("A-11")
def test_a_look_from_after_the_log_spoke_is_believed(state: StateStore) -> None:
    catalog, queue = knowing(state, HELD)
    catalog.note(heard(SystemKind.DROP_TABLE, ONE.table, identity="7"))
    catalog.ask(queue.tables)
    state.write(catalog.work_off(HELD, queue))
    ((kind, table, _),) = catalog.told(CatalogLook(tables={}, schemas={"9": "shop"}), never)
    assert (kind, table) == (SystemKind.DROP_TABLE, ONE.table)


@req("A-11")
def test_a_table_made_anew_is_told_of_once_whatever_look_was_under_way(state: StateStore) -> None:
    catalog, queue = knowing(state, HELD)
    catalog.ask(queue.tables)
    catalog.note(heard(SystemKind.TRUNCATE, ONE.table, identity="8"))
    state.write(catalog.work_off(HELD, queue))
    catalog.ask(queue.tables)
    after = CatalogLook(tables={}, schemas=HELD.schemas, joining={"8": ONE.table})
    told = catalog.told(after, lambda _: True)
    assert [(kind, payload.get("superseded")) for kind, _, payload in told] == [
        (SystemKind.DROP_TABLE, True)
    ]


@req("C30")
def test_only_a_look_that_began_later_tells_that_a_table_has_its_name_again(
    state: StateStore,
) -> None:
    catalog, queue = knowing(state, HELD)
    catalog.ask(queue.tables)
    state.write(catalog.note_astray(["7"]))
    state.write(catalog.work_off(HELD, queue))
    # It may have been made before the table had another name.
    assert catalog.names == {ONE.table}
    catalog.ask(queue.tables)
    assert catalog.note_astray(["7"]) == [], "it is noted"
    state.write(catalog.work_off(HELD, queue))
    assert catalog.names == {ONE.table}

    catalog.ask(queue.tables)
    state.write(catalog.work_off(HELD, queue))
    assert catalog.names == set()
    joins = CatalogLook(tables={}, schemas=HELD.schemas, joining={"7": ONE.table})
    told = catalog.told(joins, lambda _: True)
    assert told == [(SystemKind.TRUNCATE, ONE.table, {"anew": True})]
    assert Catalog(state).names == set()
    assert state.get("astray") == "[]"


@req("C30")
def test_a_table_that_keeps_its_new_name_is_told_of_as_ever(state: StateStore) -> None:
    catalog, queue = knowing(state, HELD)
    state.write(catalog.note_astray(["7"]))
    # After a death before the look.
    catalog = Catalog(state)
    catalog.ask(queue.tables)
    now = CatalogLook(tables={"7": CatalogEntry(TWO.table, "1|")}, schemas=HELD.schemas)
    payload = {"identity": "7", "to": str(TWO.table)}
    assert catalog.told(now, never) == [(SystemKind.RENAME_TABLE, ONE.table, payload)]
    state.write(catalog.work_off(now, queue))
    assert state.get("astray") == "[]"


@req("P02", "C30")
def test_a_request_for_all_tables_leaves_one_out_that_has_yet_to_join(state: StateStore) -> None:
    """Its changes pass by until then; when it joins, it is dumped for that."""
    catalog, queue = Catalog(state), TaskQueue(state, TABLES)
    queue.away = catalog.away
    assert not catalog.away(TABLES), "nothing is known before the first look"
    catalog.ask(queue.tables)
    joining = {"8": TWO.table}
    state.write(catalog.work_off(CatalogLook({"7": ONE_AS_SEEN}, {}, joining), queue))
    name = state.submit(Scope.ALL_TABLES)
    task = queue.current()
    assert task is not None
    assert [one.progress.table for one in queue.dumps_of(ONE.table)] == [ONE.table]
    assert queue.dumps_of(TWO.table) == []
    written(state, queue)
    assert [progress.table for progress in state.progress(name)] == [ONE.table]

    # A restart goes on with the request before it has looked.
    again, later = Catalog(state), TaskQueue(state, TABLES)
    later.away, later.has_yet_to_join = again.away, again.has_yet_to_join
    first = later.current()
    assert first is not None
    again.ask(later.tables)
    state.write(again.work_off(CatalogLook({"7": ONE_AS_SEEN}, {}, joining), later))
    later.finish(first)
    assert later.current() is None
    assert later.dumps_of(TWO.table) == []

    there = {"7": ONE_AS_SEEN, "8": CatalogEntry(TWO.table, "1|")}
    catalog.ask(queue.tables)
    joined = CatalogLook(there, {}, joining, joined=frozenset({"8"}))
    state.write(catalog.work_off(joined, queue))
    assert open_requests(state) == [None, TWO.table]
    assert not catalog.away(TABLES)


@req("P02", "C30")
def test_a_request_that_began_before_its_table_was_known_to_be_out_waits(state: StateStore) -> None:
    catalog, queue = Catalog(state), TaskQueue(state, TABLES)
    queue.has_yet_to_join = catalog.has_yet_to_join
    name = state.submit(Scope.TABLE, TWO.table)
    assert queue.current() is not None
    written(state, queue)
    catalog.ask(queue.tables)
    state.write(catalog.work_off(CatalogLook({"7": ONE_AS_SEEN}, {}, {"8": TWO.table}), queue))
    assert queue.current() is None
    written(state, queue)
    assert [(turn.request_id, turn.state) for turn in state.line()] == [(name, RequestState.QUEUED)]

    there = {"7": ONE_AS_SEEN, "8": CatalogEntry(TWO.table, "1|")}
    catalog.ask(queue.tables)
    state.write(catalog.work_off(CatalogLook(there, {}), queue))
    assert queue.current() is not None


def test_another_life_of_the_source_begins_without_identities(state: StateStore) -> None:
    known = '{"tables": {"7": ["public", "one", "1|"]}, "schemas": {}, "joining": {}}'
    state.write([lambda w: w.set("catalog", known)])
    assert Catalog(state).begun
    state.write(Catalog(state).note_astray(["7"]))
    state.write([forget_catalog])
    catalog = Catalog(state)
    assert (catalog.begun, catalog.names) == (False, set())
    assert not state.get("astray")
