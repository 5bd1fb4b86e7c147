"""When ``run --once`` may end, and when it never could."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from headrace.cli.live import render
from headrace.errors import StateError
from headrace.model.schema import TableId
from headrace.observe.status import ProcessState, ProcessStatus
from headrace.relay.follow import FELL_OFF, FOLLOWING, REFUSED, WAITING_FOR_UPSTREAM
from headrace.replicator.goal import Goal
from headrace.replicator.picture import Picture, TablePicture
from headrace.state.records import Cause, DumpProgress, DumpRequest, RequestState, Scope
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


def test_it_waits_for_requests_and_not_for_old_ones() -> None:
    before = [request("old", RequestState.FAILED), request("asked", RequestState.QUEUED)]
    goal = Goal.of(90, frozenset({NAME}), before)
    assert not goal.is_reached(PICTURE, DONE, before)
    after = [before[0], request("asked", RequestState.COMPLETED)]
    assert goal.is_reached(PICTURE, DONE, after)


@req("P05", "F20")
def test_it_waits_for_rows_that_a_repair_read_though_the_source_wrote_nothing() -> None:
    goal = Goal.of(90, frozenset({NAME}), [])
    ended = [request("asked", RequestState.COMPLETED)]
    shown = replace(PICTURE, captured_scn=110, covered_scn=110, lag_changes=4)
    assert not goal.is_reached(shown, DONE, ended, 105)
    assert goal.is_reached(replace(shown, frontier_scn=105), DONE, ended, 105)


@req("D34")
def test_a_table_that_awaits_a_dump_made_elsewhere_ends_the_run_with_its_name() -> None:
    goal = Goal.of(90, frozenset({NAME}), [])
    table = replace(PICTURE.tables[0], phase="waiting")
    assert not goal.is_reached(replace(PICTURE, tables=(table,)), {}, [])
    awaited = replace(table, error="it is filled elsewhere.")
    with pytest.raises(StateError, match=r"public.t waits: it is filled elsewhere") as caught:
        goal.is_reached(replace(PICTURE, tables=(awaited,)), {}, [])
    assert "adopt it" in caught.value.next_step


@req("N08")
def test_what_only_a_person_ends_ends_the_run_with_its_name() -> None:
    goal = Goal.of(90, frozenset({NAME}), [])
    with pytest.raises(StateError, match="request asked is paused") as caught:
        goal.is_reached(PICTURE, DONE, [request("asked", RequestState.PAUSED)])
    assert "headrace dump resume FILE asked" in caught.value.next_step
    with pytest.raises(StateError, match="Log delivery is paused"):
        goal.is_reached(replace(PICTURE, log_paused=True), DONE, [])
    table = replace(PICTURE.tables[0], phase="incomplete", error="its copy was cancelled.")
    with pytest.raises(StateError, match=r"public\.t is incomplete: its copy was cancelled"):
        goal.is_reached(replace(PICTURE, tables=(table,)), DONE, [])
    # A dump that the table did not need may be cancelled.
    assert goal.is_reached(PICTURE, DONE, [request("asked", RequestState.CANCELLED)])


@req("N08", "C67")
def test_changes_that_were_put_aside_end_the_run_once_everything_else_is_done() -> None:
    goal = Goal.of(90, frozenset({NAME}), [])
    error = f"DeadLetters: {NAME} goes on without the changes of 2 transactions"
    lacking = replace(PICTURE.tables[0], phase="failing", error=error, applied_scn=90)
    with pytest.raises(StateError, match=rf"put aside: {NAME}\.") as caught:
        goal.is_reached(replace(PICTURE, tables=(lacking,)), DONE, [])
    assert f"headrace dead-letters list FILE --table {NAME}" in caught.value.next_step
    # Until then the run has work: what it lacks beside them, and the other tables.
    behind = replace(lacking, applied_scn=89, lag_changes=1)
    assert not goal.is_reached(replace(PICTURE, tables=(behind,)), DONE, [])
    early = replace(PICTURE, tables=(lacking,), frontier_scn=89, covered_scn=89, lag_changes=1)
    assert not goal.is_reached(early, DONE, [])
    # What time may heal is waited for.
    failing = replace(lacking, error="TargetUnavailable: it is away")
    assert not goal.is_reached(replace(PICTURE, tables=(failing,)), DONE, [])


@req("N08")
def test_a_table_that_only_a_person_mends_ends_the_run_once_everything_else_is_done() -> None:
    other = TablePicture("public.other", "live", 5, 5, 0, 100)
    stuck = replace(
        PICTURE.tables[0], phase="failing", error="SchemaIncompatible: a name", applied_scn=0
    )

    def picture(retry: str, **changes: Any) -> Picture:
        error = {"name": "SchemaIncompatible", "message": "a name", "retry": retry}
        detail = {"tables": {NAME: {"error": {**error, "next_step": "rename it."}}}}
        apply = ProcessStatus("apply", 1, ProcessState.RUNNING, 1, detail)
        return replace(PICTURE, tables=(stuck, other), roles={"apply": apply}, **changes)

    goal = Goal.of(90, frozenset({NAME, "public.other"}), [])
    done = {"public.other": replace(DONE[NAME], table=TableId("public", "other"))}
    with pytest.raises(
        StateError, match=rf"but for {NAME}, .*: SchemaIncompatible: a name"
    ) as caught:
        goal.is_reached(picture("manual"), done, [])
    assert caught.value.next_step == "rename it."
    # Until then there is something to wait for: time, the other table, a request.
    assert not goal.is_reached(picture("timed"), done, [])
    assert not goal.is_reached(picture("manual", frontier_scn=89, lag_changes=1), done, [])
    assert not goal.is_reached(picture("manual"), {}, [])
    assert not goal.is_reached(picture("manual"), done, [request("asked", RequestState.QUEUED)])
    # It is no table of the run's.
    assert Goal.of(90, frozenset({"public.other"}), []).is_reached(picture("manual"), done, [])


@req("C60")
def test_a_request_that_fails_ends_the_run_with_its_reason() -> None:
    goal = Goal.of(90, frozenset({NAME}), [])
    with pytest.raises(StateError, match=r"asked: public\.t is gone") as caught:
        goal.is_reached(PICTURE, {}, [request("asked", RequestState.FAILED, "public.t is gone")])
    assert caught.value.next_step


GONE = TableId("public", "gone")


@req("C60", "P33")
def test_a_copy_that_failed_because_its_table_is_gone_is_no_matter_once_the_log_has_said_so() -> (
    None
):
    goal = Goal.of(90, frozenset({NAME}), [])
    failed = DumpRequest(
        "own", Scope.TABLE, GONE, (), (), RequestState.FAILED, "no table", cause=Cause.FIRST_COPY
    )

    def progress(state: str, table: TableId = GONE) -> dict[str, DumpProgress]:
        return {**DONE, str(table): DumpProgress("own", table, state=state)}

    assert goal.is_reached(PICTURE, progress("dropped"), [failed])
    # Its select found none; the log, which may say why, is not here yet.
    early = replace(PICTURE, covered_scn=89, frontier_scn=89)
    assert not goal.is_reached(early, progress("failed"), [failed])
    waiting = [failed, request("asked", RequestState.QUEUED)]
    assert not goal.is_reached(PICTURE, progress("failed"), waiting)
    with pytest.raises(StateError, match="request own: no table"):
        goal.is_reached(PICTURE, progress("failed"), [failed])
    # The source had it when the run began.
    with pytest.raises(StateError, match="request own: no table"):
        goal.is_reached(PICTURE, progress("dropped", TABLE), [replace(failed, table=TABLE)])
    # It came back, and was copied by another request.
    assert goal.is_reached(PICTURE, DONE, [replace(failed, table=TABLE)])
    with pytest.raises(StateError, match="request own: no table"):
        goal.is_reached(PICTURE, progress("dropped"), [replace(failed, cause=Cause.ASKED)])
    # One of a request for all tables.
    everything = replace(failed, scope=Scope.ALL_TABLES, table=None)
    rest = {NAME: replace(DONE[NAME], request_id="own")}
    assert goal.is_reached(PICTURE, progress("dropped") | rest, [everything])
    with pytest.raises(StateError, match="request own: no table"):
        goal.is_reached(PICTURE, progress("failed") | rest, [everything])


def test_relays_that_give_nothing_more_end_the_run_by_name() -> None:
    def reading(state: str) -> Picture:
        detail = {"state": state, "detail": "what stands in the way"}
        capture = ProcessStatus("capture", 1, ProcessState.RUNNING, 1, detail)
        return replace(PICTURE, covered_scn=0, frontier_scn=0, roles={"capture": capture})

    goal = Goal.of(90, frozenset(), [])
    for state in (FOLLOWING, WAITING_FOR_UPSTREAM):
        assert not goal.is_reached(reading(state), {}, [])
        assert "stands in the way" not in shown(reading(state))
    for state in (FELL_OFF, REFUSED):
        with pytest.raises(StateError, match="what stands in the way"):
            goal.is_reached(reading(state), {}, [])
        assert "what stands in the way" in shown(reading(state))


def shown(picture: Picture) -> str:
    """Return what people see of a picture."""
    console = Console(file=io.StringIO(), width=120)
    console.print(render("shop", picture))
    return str(console.file.getvalue())  # type: ignore[attr-defined]
