"""What looks at the catalog do to requests that people steer, and to tables with a gap."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.model.schema import TableId
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
    still = queue.current()
    assert still is not None
    assert still.progress.table == TWO.table
    if task is not None:
        assert still is task


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


def test_another_life_of_the_source_begins_without_identities(state: StateStore) -> None:
    known = '{"tables": {"7": ["public", "one", "1|"]}, "schemas": {}, "joining": {}}'
    state.write([lambda w: w.set("catalog", known)])
    assert Catalog(state).begun
    state.write([forget_catalog])
    catalog = Catalog(state)
    assert (catalog.begun, catalog.names) == (False, set())
