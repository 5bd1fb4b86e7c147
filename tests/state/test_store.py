"""Requests, their moves and the pace in the state database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.model.schema import TableId
from headrace.state.copies import copies_of
from headrace.state.minutes import MinuteStore
from headrace.state.pace import ADAPTIVE, OwnPace, Pace
from headrace.state.records import (
    OPEN,
    Cause,
    DumpProgress,
    DumpRequest,
    RequestState,
    Scope,
    Turn,
)
from headrace.state.store import StateStore
from tests.requirements import req

S = RequestState
T = TableId("public", "t")


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateStore]:
    with closing(StateStore(tmp_path / "state.db")) as opened:
        yield opened


@pytest.mark.parametrize("name", ["what?", "a%20b", "what?timeout=0", "a#b", "ä 日本"])
def test_the_databases_lie_in_their_folder_whatever_its_name_is(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    with closing(StateStore(folder / "state.db")) as state:
        state.submit(Scope.TABLE, T)
    with closing(MinuteStore(folder / "activity.db")) as minutes:
        minutes.set("told", "yes")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert {"state.db", "activity.db"} <= {path.name for path in folder.iterdir()}


@req("N02")
def test_the_line_goes_by_priority_then_by_who_runs_then_by_age(state: StateStore) -> None:
    first, second, third, urgent = (
        state.submit(Scope.TABLE, T, priority=priority) for priority in (0, 0, 0, 3)
    )
    state.move(second, S.ACTIVE, since=[S.QUEUED])
    state.move(third, S.CANCELLED, since=OPEN)
    assert state.line() == [
        Turn(urgent, S.QUEUED, 3, T),
        Turn(second, S.ACTIVE, 0, T),
        Turn(first, S.QUEUED, 0, T),
    ]
    state.move(urgent, S.PAUSED, since=OPEN)
    turn = state.next_request()
    assert turn is not None
    assert turn.request_id == second


@req("N08")
def test_a_request_moves_only_from_where_it_was_thought_to_be(state: StateStore) -> None:
    asked = state.submit(Scope.TABLE, T)
    assert state.move(asked, S.PAUSED, since=[S.QUEUED, S.ACTIVE])
    # A capture that has not heard of the pause begins the request, and finds another one more urgent.
    state.write([lambda w: w.request_state(asked, S.ACTIVE, since=[S.QUEUED])])
    state.write([lambda w: w.request_state(asked, S.QUEUED, since=[S.ACTIVE])])
    found = state.request(asked)
    assert found is not None
    assert found.state is S.PAUSED
    assert state.move(asked, S.CANCELLED, since=OPEN)
    state.write([lambda w: w.request_state(asked, S.COMPLETED, since=OPEN)])
    found = state.request(asked)
    assert found is not None
    assert found.state is S.CANCELLED
    assert not state.move("nobody", S.PAUSED, since=OPEN)
    assert state.request("nobody") is None


@pytest.mark.parametrize(
    "more",
    [
        {"scope": Scope.PREDICATE},
        {"scope": Scope.TABLE, "predicate": "id > 1"},
        {"scope": Scope.PREDICATE, "predicate": "id > 1", "keys": [("1",)]},
        {"scope": Scope.TABLE, "delete_missing": True},
    ],
)
def test_parts_that_do_not_fit_are_refused(state: StateStore, more: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="PREDICATE a table and a condition"):
        state.submit(table=T, **more)  # type: ignore[arg-type]
    assert state.requests() == []


@pytest.mark.parametrize(
    "asked",
    [
        {"scope": Scope.PRIMARY_KEYS, "keys": [("1", "\ud800")]},
        {"scope": Scope.PREDICATE, "predicate": "v = '\udcff'"},
        {"scope": Scope.TABLE, "table": TableId("public", "\udcff")},
    ],
)
def test_what_is_no_text_is_refused(state: StateStore, asked: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no text in UTF-8"):
        state.submit(**{"table": T, **asked})  # type: ignore[arg-type]
    assert state.requests() == []


@req("N05", "N06", "N07")
def test_the_pace_is_kept_setting_by_setting(state: StateStore, tmp_path: Path) -> None:
    assert state.pace() == Pace()
    state.set_pace(load=0.5, chunk_rows=ADAPTIVE)
    with closing(StateStore(tmp_path / "state.db")) as other:
        other.set_pace(log_paused=True, log_rows_per_s=100.0)
    assert state.pace() == Pace(ADAPTIVE, load=0.5, log_paused=True, log_rows_per_s=100.0)
    assert state.set_pace(load=None, log_paused=False) == Pace(ADAPTIVE, log_rows_per_s=100.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("chunk_rows", -1),
        ("chunk_s", 0.0),
        ("load", 0.0),
        ("load", 1.5),
        ("delay_s", -1.0),
        ("rows_per_s", -0.1),
        ("log_rows_per_s", -1.0),
    ],
)
def test_a_pace_out_of_bounds_changes_nothing(state: StateStore, name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        state.set_pace(**{"delay_s": 1.0, name: value})
    assert state.pace() == Pace()


@req("C-7")
def test_a_database_of_an_older_headrace_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(StateStore(path)) as state:
        asked = state.submit(Scope.PRIMARY_KEYS, T, [("1",)])
        state.write([lambda w: w.put_progress(DumpProgress(asked, T, rows_read=7), 0)])
    with closing(sqlite3.connect(path)) as old:
        for column in ("priority", "cause", "predicate", "delete_missing", "pace", "key_order"):
            old.execute(f"ALTER TABLE requests DROP COLUMN {column}")
        for column in ("keys_done", "rows_per_s", "key_order"):
            old.execute(f"ALTER TABLE progress DROP COLUMN {column}")
        old.execute("PRAGMA user_version = 0")
        old.commit()
    for _ in range(2):
        with closing(StateStore(path)) as state:
            (request,) = state.requests()
            assert (request.request_id, request.keys) == (asked, (("1",),))
            assert (request.priority, request.cause, request.predicate) == (0, Cause.ASKED, "")
            assert request.delete_missing is False
            assert request.pace == OwnPace()
            assert request.key_order == ""
            (progress,) = state.progress()
            assert (progress.rows_read, progress.keys_done, progress.rows_per_s) == (7, 0, 0.0)
            assert progress.key_order == ""


def test_a_request_keeps_of_which_key_its_keys_are(state: StateStore) -> None:
    state.submit(Scope.REPAIR, T, [("1",)], key_order="by id")
    assert [request.key_order for request in state.requests()] == ["by id"]


# -- which dump says how a table stands -------------------------------------------------------------


def asked_for(
    name: str,
    state: RequestState,
    cause: Cause = Cause.ASKED,
    table: TableId | None = T,
    scope: Scope = Scope.TABLE,
) -> DumpRequest:
    return DumpRequest(name, scope, table, (), (), state, "", cause=cause)


def done(name: str, scn: int = 50) -> DumpProgress:
    return DumpProgress(name, T, "done", completed_scn=scn)


def begun(name: str) -> DumpProgress:
    return DumpProgress(name, T, "copying", chunks=1)


@req("N08")
@pytest.mark.parametrize(
    ("requests", "progress", "told_by", "cancelled"),
    [
        ([asked_for("a", S.COMPLETED)], [done("a")], "a", False),
        # The newest says it, while it runs too.
        (
            [asked_for("a", S.COMPLETED), asked_for("b", S.ACTIVE)],
            [done("a"), begun("b")],
            "b",
            False,
        ),
        # Needless ones that were cancelled say nothing.
        (
            [asked_for("a", S.COMPLETED), asked_for("b", S.CANCELLED)],
            [done("a"), begun("b")],
            "a",
            False,
        ),
        # Cancelled too late.
        ([asked_for("a", S.CANCELLED)], [done("a")], "a", False),
        # A first copy, begun or not.
        ([asked_for("a", S.CANCELLED, Cause.FIRST_COPY)], [begun("a")], "a", True),
        ([asked_for("a", S.CANCELLED, Cause.FIRST_COPY)], [], "a", True),
        (
            [asked_for("a", S.CANCELLED, Cause.FIRST_COPY, None, Scope.ALL_TABLES)],
            [],
            "a",
            True,
        ),
        # One that the table needed although it was complete once.
        (
            [asked_for("a", S.COMPLETED), asked_for("b", S.CANCELLED, Cause.FILLED)],
            [done("a"), begun("b")],
            "b",
            True,
        ),
        # Another asked for makes it good, from when it waits.
        ([asked_for("a", S.CANCELLED), asked_for("b", S.QUEUED)], [begun("a")], "b", False),
        (
            [asked_for("a", S.CANCELLED), asked_for("b", S.COMPLETED)],
            [begun("a"), done("b")],
            "b",
            False,
        ),
        # Parts of a table say nothing about it.
        (
            [asked_for("a", S.CANCELLED), asked_for("b", S.COMPLETED, scope=Scope.PREDICATE)],
            [begun("a"), DumpProgress("b", T, "done")],
            "a",
            True,
        ),
    ],
)
def test_how_a_table_stands(
    requests: list[DumpRequest], progress: list[DumpProgress], told_by: str, cancelled: bool
) -> None:
    copy = copies_of(requests, progress, [T])[T]
    assert copy.request.request_id == told_by
    assert copy.is_cancelled is cancelled


def test_a_paused_copy_is_told_apart() -> None:
    assert copies_of([asked_for("a", S.PAUSED)], [begun("a")])[T].is_paused
    assert not copies_of([asked_for("a", S.ACTIVE)], [begun("a")])[T].is_paused
    assert copies_of([asked_for("a", S.PAUSED)], []) == {}


def test_the_time_left_is_only_told_when_somebody_can_know() -> None:
    shown = DumpProgress("a", T, "copying", rows_read=30, rows_estimated=100, rows_per_s=7.0)
    assert shown.seconds_left == pytest.approx(10.0)
    assert DumpProgress("a", T, "copying", rows_read=30, rows_per_s=7.0).seconds_left is None
    assert DumpProgress("a", T, "copying", rows_estimated=100).seconds_left is None
    over = DumpProgress("a", T, "copying", rows_read=120, rows_estimated=100, rows_per_s=7.0)
    assert over.seconds_left == 0
    assert DumpProgress("a", T, "done", rows_estimated=9, rows_per_s=1.0).seconds_left is None
