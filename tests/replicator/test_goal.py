"""When ``run --once`` may end, and when it never could."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.errors import StateError
from headrace.model.schema import TableId
from headrace.replicator.goal import Goal
from headrace.replicator.picture import Picture, TablePicture
from headrace.state.store import DumpProgress, DumpRequest, RequestState, Scope
from tests.requirements import req

TABLE = TableId("public", "t")
NAME = str(TABLE)
PICTURE = Picture(
    (TablePicture(NAME, "live", 5, 5, 0, 100),),
    captured_scn=100,
    covered_scn=100,
    frontier_scn=100,
    lag_changes=0,
    lag_s=0.0,
    log_bytes=1,
    log_budget_bytes=2,
    roles={},
)
DONE = {NAME: DumpProgress("first", TABLE, state="done", completed_scn=50)}


def request(name: str, state: RequestState, reason: str = "") -> DumpRequest:
    return DumpRequest(name, Scope.TABLE, TABLE, (), (), state, reason)


@req("C24")
def test_it_ends_when_every_table_is_whole_and_shows_the_moment() -> None:
    goal = Goal.of(90, frozenset({NAME}), [])
    assert goal.is_reached(PICTURE, DONE, [])
    assert not Goal.of(101, frozenset({NAME}), []).is_reached(PICTURE, DONE, [])
    assert not goal.is_reached(PICTURE, {}, [])
    copying = replace(PICTURE, tables=(replace(PICTURE.tables[0], phase="copying"),))
    assert not goal.is_reached(copying, DONE, [])
    # The end of the dump itself must be shown, however early the moment was.
    late = {NAME: replace(DONE[NAME], completed_scn=101)}
    assert not goal.is_reached(PICTURE, late, [])


@req("C24")
def test_it_waits_for_requests_and_not_for_old_ones() -> None:
    before = [request("old", RequestState.FAILED), request("asked", RequestState.QUEUED)]
    goal = Goal.of(90, frozenset({NAME}), before)
    assert not goal.is_reached(PICTURE, DONE, before)
    after = [before[0], request("asked", RequestState.COMPLETED)]
    assert goal.is_reached(PICTURE, DONE, after)


@req("C24", "C60")
def test_a_request_that_fails_ends_the_run_with_its_reason() -> None:
    goal = Goal.of(90, frozenset({NAME}), [])
    with pytest.raises(StateError, match=r"asked: public\.t is gone") as caught:
        goal.is_reached(PICTURE, {}, [request("asked", RequestState.FAILED, "public.t is gone")])
    assert caught.value.next_step
