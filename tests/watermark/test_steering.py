"""Dumps that people pause, resume, cancel and reprioritise, over a scripted database."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.observe import failpoints
from headrace.sources.scripted.database import MISSING, Change
from headrace.state.records import OPEN, RequestState
from headrace.state.store import Scope
from tests.requirements import req
from tests.watermark.machine import ONE, THREE, TWO, Crash, Machine
from tests.watermark.steering import (
    ALL_ROWS,
    cancel,
    first_request,
    pause,
    resume,
    state_of,
    stop_after,
)


@req("N08", "P08", "F7")
@pytest.mark.parametrize("restart", [False, True])
def test_a_paused_dump_rests_after_its_chunk_and_goes_on_with_the_next(
    tmp_path: Path, restart: bool
) -> None:
    machine = Machine(tmp_path)
    with machine.capture() as (capture, state):
        stop_after(machine, capture, state, 2)
        asked = first_request(state)
        pause(state, asked)
        machine.work(capture, state)
        held = machine.source.statements
        for _ in range(20):
            capture.step(0.0)
        assert machine.source.statements == held
        if not restart:
            resume(state, asked)
            machine.work(capture, state)
    if restart:
        # Nobody but a person takes it up again.
        machine.run()
        assert machine.request(asked).state is RequestState.PAUSED
        assert machine.source.statements == held
        with machine.state() as state:
            resume(state, asked)
        machine.run()

    assert machine.request(asked).state is RequestState.COMPLETED
    # Each row once: nothing that was read before the pause is read again.
    for schema in (ONE, TWO, THREE):
        assert machine.read_rows(schema) == ALL_ROWS
    assert machine.progress()[ONE.table].chunks == 4


@req("N02", "N08")
def test_what_waits_is_paused_before_it_begins_and_others_go_on(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.run()
    first, second = (machine.submit(Scope.TABLE, schema) for schema in (ONE, TWO))
    with machine.state() as state:
        pause(state, first)
    begin = machine.end_scn()
    machine.run()

    assert machine.request(first).state is RequestState.PAUSED
    assert machine.request(second).state is RequestState.COMPLETED
    assert machine.read_rows(ONE, begin) == []
    assert machine.read_rows(TWO, begin) == ALL_ROWS
    with machine.state() as state:
        resume(state, first)
    machine.run()
    assert machine.read_rows(ONE, begin) == ALL_ROWS


@req("N08", "P19")
@pytest.mark.parametrize(
    "place", ["window.after_select", "window.after_emit", "capture.after_sync"]
)
@pytest.mark.parametrize("wish", [RequestState.PAUSED, RequestState.CANCELLED])
def test_what_a_person_did_survives_a_crash_in_the_chunk_under_way(
    tmp_path: Path, place: str, wish: RequestState
) -> None:
    machine = Machine(tmp_path)

    def die() -> None:
        raise Crash

    with machine.capture() as (capture, state):
        stop_after(machine, capture, state, 2)
        asked = first_request(state)

        def steer_and_die() -> None:
            state.move(asked, wish, since=OPEN)
            raise Crash

        failpoints.arm(place, steer_and_die)
        machine.work(capture, state)
    machine.run()
    assert machine.request(asked).state is wish
    assert machine.completions() == []
    assert len(set(machine.read_rows(ONE))) in (6, 9)


@req("N08")
@pytest.mark.parametrize("restart", [False, True])
def test_a_first_copy_that_is_cancelled_never_looks_complete(tmp_path: Path, restart: bool) -> None:
    machine = Machine(tmp_path)
    with machine.capture() as (capture, state):
        stop_after(machine, capture, state, 2)
        asked = first_request(state)
        cancel(state, asked)
        if not restart:
            machine.work(capture, state)
    machine.run()

    assert machine.request(asked).state is RequestState.CANCELLED
    assert machine.completions() == []
    assert machine.read_rows(TWO) == []
    with machine.state() as state:
        copies = state.copies()
        assert [table for table, copy in copies.items() if copy.is_cancelled] == [
            ONE.table,
            TWO.table,
            THREE.table,
        ]
        # It was not taken up again by itself.
        assert [r.request_id for r in state.requests()] == [asked]
    machine.submit(Scope.TABLE, TWO)
    machine.run()
    assert machine.completions() == [TWO.table]
    with machine.state() as state:
        assert not state.copies()[TWO.table].is_cancelled
        assert state.copies()[ONE.table].is_cancelled


@req("N08")
def test_a_second_dump_that_is_cancelled_leaves_the_table_complete(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.run()
    before = machine.progress()
    asked = machine.submit(Scope.TABLE, ONE)
    with machine.capture() as (capture, state):
        machine.work(capture, state, lambda: any(p.chunks == 2 for p in state.progress(asked)))
        cancel(state, asked)
        machine.work(capture, state)
        assert state.progress(asked)[0].state == "cancelled"
    machine.run()
    assert machine.progress() == before
    with machine.state() as state:
        assert not any(copy.is_cancelled for copy in state.copies().values())
        assert len(state.requests()) == 2


def move(machine: Machine, old: int, new: int) -> None:
    """Move a row to another key; the log leaves its value out."""
    row, table = machine.row(ONE, old), ONE.table
    machine.write(
        Change(table, "-U", (old, MISSING)),
        Change(table, "+U", (new, MISSING)),
        puts=[(table, "remove", row), (table, "add", (new, row[1]))],
    )


@req("P19", "N08")
@pytest.mark.parametrize("restart", [False, True])
def test_a_row_that_moves_behind_a_paused_dump_is_read_again(tmp_path: Path, restart: bool) -> None:
    machine = Machine(tmp_path)
    table = ONE.table
    with machine.capture() as (capture, state):
        stop_after(machine, capture, state, 2)
        asked = first_request(state)
        pause(state, asked)
        machine.work(capture, state)
        if not restart:
            machine.write(Change(table, "-D", (2, MISSING)), puts=[(table, "remove", (2, "v2"))])
            move(machine, 8, 2)
            machine.work(capture, state)
            assert state.reread(table) == [("2",)]
    if restart:
        machine.write(Change(table, "-D", (2, MISSING)), puts=[(table, "remove", (2, "v2"))])
        move(machine, 8, 2)
        machine.run()
        with machine.state() as state:
            assert state.reread(table) == [("2",)]
    with machine.state() as state:
        resume(state, asked)
    machine.run()
    # Nobody held row 8 when it moved; the key that it moved to was read already.
    assert (2, "v8") in machine.read_rows(ONE)
    with machine.state() as state:
        assert state.reread(table) == []
    assert machine.completions() == [ONE.table, TWO.table, THREE.table]


@req("N08")
def test_a_pause_that_was_taken_back_before_it_was_heard_changes_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with machine.capture() as (capture, state):
        stop_after(machine, capture, state, 1)
        asked = first_request(state)
        pause(state, asked)
        resume(state, asked)
        assert state_of(state, asked) is RequestState.QUEUED
        stop_after(machine, capture, state, 3)
        # It is being read, and a pause of it has something to wait for.
        assert state_of(state, asked) is RequestState.ACTIVE
        machine.work(capture, state)
        assert state_of(state, asked) is RequestState.COMPLETED


@req("N08")
@pytest.mark.parametrize("crash", [False, True])
def test_a_copy_that_is_cancelled_unheard_is_no_more_said_to_be_read(
    tmp_path: Path, crash: bool
) -> None:
    machine = Machine(tmp_path)
    with machine.capture() as (capture, state):
        stop_after(machine, capture, state, 2)
        move(machine, 8, 20)
        machine.work(capture, state, lambda: state.reread(ONE.table) == [("20",)])
        asked = first_request(state)
        if crash:
            # Whatever is under way is lost with the process.
            cancel(state, asked)
    if not crash:
        with machine.state() as state:
            cancel(state, asked)
    with machine.capture() as (capture, state):
        assert {p.state for p in state.progress(asked)} == {"cancelled"}
        assert state.reread(ONE.table) == []
        machine.work(capture, state)
        begin = capture.status().complete_scn
        state.submit(Scope.TABLE, ONE.table)
        machine.work(capture, state)
    kept = [row for row in ALL_ROWS if row[0] != 8]
    assert machine.read_rows(ONE, begin) == [*kept, (20, "v8")]


@req("N08")
def test_a_cancelled_copy_leaves_no_list_behind(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with machine.capture() as (capture, state):
        stop_after(machine, capture, state, 2)
        move(machine, 8, 20)
        machine.work(capture, state, lambda: state.reread(ONE.table) == [("20",)])
        cancel(state, first_request(state))
        machine.work(capture, state)
        assert state.reread(ONE.table) == []
        # The next dump reads the table from its first row, the moved one with it.
        begin = capture.status().complete_scn
        state.submit(Scope.TABLE, ONE.table)
        machine.work(capture, state)
    kept = [row for row in ALL_ROWS if row[0] != 8]
    assert machine.read_rows(ONE, begin) == [*kept, (20, "v8")]


@req("N08")
@pytest.mark.parametrize("scope", [Scope.TABLE, Scope.PRIMARY_KEYS, Scope.PREDICATE])
@pytest.mark.parametrize("priority", [0, 10])
@pytest.mark.parametrize("crash", [False, True])
def test_what_was_asked_for_is_read_though_the_first_copy_is_cancelled(
    tmp_path: Path, scope: Scope, priority: int, crash: bool
) -> None:
    """Behind the copy or, more urgent, in its middle; a row moves between the two meanwhile."""
    machine = Machine(tmp_path)
    keys = [("1",), ("5",), ("7",), ("20",)] if scope is Scope.PRIMARY_KEYS else []
    where = "c1 = 'v5'" if scope is Scope.PREDICATE else ""
    with machine.capture() as (capture, state):
        stop_after(machine, capture, state, 2)
        first = first_request(state)
        asked = state.submit(scope, ONE.table, keys, predicate=where, priority=priority)
        begun = not priority
        machine.work(capture, state, lambda: begun or any(p.chunks for p in state.progress(asked)))
        move(machine, 8, 20)
        for _ in range(3):
            capture.step(0.0)
        cancel(state, first)
        if not crash:
            machine.work(capture, state)
    machine.run()

    assert machine.request(first).state is RequestState.CANCELLED
    assert machine.request(asked).state is RequestState.COMPLETED
    whole = scope is Scope.TABLE
    assert machine.completions() == ([ONE.table] if whole else [])
    if whole:
        assert (20, "v8") in machine.read_rows(ONE)
    with machine.state() as state:
        assert state.reread(ONE.table) == []
        assert state.copies()[ONE.table].is_cancelled is not whole
        assert state.copies()[TWO.table].is_cancelled


@req("N02", "N09")
def test_what_is_urgent_overtakes_and_what_it_overtakes_goes_on_where_it_was(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    machine.run()
    begin = machine.end_scn()
    slow = machine.submit(Scope.TABLE, ONE)
    with machine.capture() as (capture, state):
        machine.work(capture, state, lambda: any(p.chunks == 1 for p in state.progress(slow)))
        urgent = state.submit(Scope.PRIMARY_KEYS, TWO.table, [("5",)], priority=10)

        machine.work(capture, state, lambda: state_of(state, urgent) is RequestState.COMPLETED)
        assert state_of(state, slow) is RequestState.QUEUED
        assert state.progress(slow)[0].rows_read <= 6
        assert state.progress(slow)[0].state == "copying"
        machine.work(capture, state)
    assert machine.read_rows(TWO, begin) == [(5, "v5")]
    assert machine.read_rows(ONE, begin) == ALL_ROWS
    assert machine.request(slow).state is RequestState.COMPLETED


@req("N02")
def test_a_priority_may_change_while_a_request_waits(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.run()
    before = len(machine.completions())
    machine.submit(Scope.TABLE, ONE)
    second = machine.submit(Scope.TABLE, TWO)
    machine.submit(Scope.TABLE, THREE, priority=-1)
    with machine.state() as state:
        assert state.steer(second, priority=5)
    machine.run()
    assert machine.completions()[before:] == [TWO.table, ONE.table, THREE.table]
    with machine.state() as state:
        assert not state.steer(second, priority=7)


def test_equal_priorities_never_overtake(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.run()
    before = len(machine.completions())
    older = machine.submit(Scope.TABLE, ONE)
    with machine.state() as state:
        pause(state, older)
    younger = machine.submit(Scope.TABLE, TWO)
    with machine.capture() as (capture, state):
        machine.work(capture, state, lambda: any(p.chunks == 1 for p in state.progress(younger)))
        resume(state, older)
        machine.work(capture, state)
    assert machine.completions()[before:] == [TWO.table, ONE.table]


def test_two_dumps_of_one_table_share_what_moved(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with machine.capture() as (capture, state):
        stop_after(machine, capture, state, 2)
        paused = first_request(state)
        pause(state, paused)
        other = state.submit(Scope.TABLE, ONE.table)
        machine.work(capture, state, lambda: any(p.chunks == 3 for p in state.progress(other)))
        move(machine, 9, 1_000)
        machine.work(capture, state)
        assert state_of(state, other) is RequestState.COMPLETED
        assert state.reread(ONE.table) == []
        resume(state, paused)
        machine.work(capture, state)
        assert state_of(state, paused) is RequestState.COMPLETED
    assert machine.completions() == [ONE.table, ONE.table, TWO.table, THREE.table]
    assert (1_000, "v9") in machine.read_rows(ONE)


def test_a_lost_connection_changes_nothing_for_who_rests(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with machine.capture() as (capture, state):
        stop_after(machine, capture, state, 2)
        asked = first_request(state)
        pause(state, asked)
        capture.close_connections()
        capture.open_connections()
        machine.work(capture, state)
        assert state_of(state, asked) is RequestState.PAUSED
        resume(state, asked)
        machine.work(capture, state)
    assert machine.completions() == [ONE.table, TWO.table, THREE.table]
    assert set(machine.read_rows(ONE)) == set(ALL_ROWS)
