"""Dumps that people pause, resume, cancel and reprioritise, over a scripted database."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.observe import failpoints
from headrace.relay.capture import Capture
from headrace.sources.scripted.database import MISSING, Change
from headrace.state.records import OPEN, RequestState
from headrace.state.store import Scope, StateStore
from tests.requirements import req
from tests.watermark.machine import ONE, THREE, TWO, Crash, Machine

ALL_ROWS = [(key, f"v{key}") for key in range(10)]


def first_request(state: StateStore) -> str:
    return state.requests()[0].request_id


def pause(state: StateStore, request_id: str) -> None:
    assert state.move(request_id, RequestState.PAUSED, since=OPEN[:2])


def resume(state: StateStore, request_id: str) -> None:
    assert state.move(request_id, RequestState.QUEUED, since=[RequestState.PAUSED])


def cancel(state: StateStore, request_id: str) -> None:
    assert state.move(request_id, RequestState.CANCELLED, since=OPEN)


def stop_after(machine: Machine, capture: Capture, state: StateStore, chunks: int) -> None:
    """Work until so many chunks of table one are finished."""

    def reached() -> bool:
        return any(p.table == ONE.table and p.chunks >= chunks for p in state.progress())

    machine.work(capture, state, reached)


def state_of(state: StateStore, request_id: str) -> RequestState:
    found = state.request(request_id)
    assert found is not None
    return found.state


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
        assert state.prioritise(second, 5)
    machine.run()
    assert machine.completions()[before:] == [TWO.table, ONE.table, THREE.table]
    with machine.state() as state:
        assert not state.prioritise(second, 7)


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


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@req("N05", "N06", "P57", "F7")
def test_size_and_delay_change_while_a_dump_runs(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    clock = machine.clock = Clock()
    with machine.capture() as (capture, state):
        stop_after(machine, capture, state, 1)
        state.set_pace(chunk_rows=2, delay_s=10.0)
        clock.now += 10.1
        stop_after(machine, capture, state, 2)
        assert state.progress()[0].rows_read == 5
        for _ in range(20):
            capture.step(0.0)
            clock.now += 0.4
        # Eight seconds went by, and only the log flowed.
        assert state.progress()[0].chunks == 2
        clock.now += 2.1
        stop_after(machine, capture, state, 3)
        assert state.progress()[0].rows_read == 7
        # A rest that is under way ends when the delay is taken back.
        state.set_pace(delay_s=None, chunk_rows=None)
        stop_after(machine, capture, state, 4)
        assert state.progress()[0].rows_read == 10
        machine.work(capture, state)
    assert machine.read_rows(ONE) == ALL_ROWS


@req("P57")
def test_rows_per_second_hold_a_dump_back(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    clock = machine.clock = Clock()
    begun = clock.now
    with machine.capture() as (capture, state):
        state.set_pace(rows_per_s=1.0)
        while len(state.progress()) < 3 or not all(p.completed_scn for p in state.progress()):
            capture.step(0.0)
            clock.now += 0.25
            assert clock.now < begun + 100
    # Thirty rows; the last chunk's rest is not waited for.
    assert 26 <= clock.now - begun <= 45


@req("N05", "N08")
def test_what_people_do_is_heard_within_a_second(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    clock = machine.clock = Clock()
    machine.dump = type(machine.dump)(chunk_rows=1, snapshot_interval_s=0.0)
    with machine.capture() as (capture, state):
        stop_after(machine, capture, state, 2)
        pause(state, first_request(state))
        state.set_pace(log_paused=True)
        asked_at = clock.now
        while capture.coordinator is not None and capture.doing != "log paused":
            capture.step(0.0)
            clock.now += 0.05
        assert clock.now - asked_at < 1
        state.set_pace(log_paused=False)
        clock.now += 1
        read = machine.source.statements
        for _ in range(30):
            capture.step(0.0)
            clock.now += 0.05
        assert machine.source.statements == read


def test_what_people_do_while_a_chunk_is_read_is_heard_before_the_next(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    clock = machine.clock = Clock()
    machine.dump = type(machine.dump)(chunk_rows=1, snapshot_interval_s=0.0)
    with machine.capture() as (capture, state):
        stop_after(machine, capture, state, 2)
        request_id = first_request(state)
        assert capture.coordinator is not None
        while not machine.database.backlog:
            capture.step(0.0)
        # Its marks are on their way: the pause is due to be heard, and the chunk is under way.
        pause(state, request_id)
        clock.now += 1
        capture.coordinator.tick()
        read = machine.source.statements
        for _ in range(10):
            capture.step(0.0)
        assert machine.source.statements == read
        assert machine.request(request_id).state is RequestState.PAUSED


@req("N08", "P08", "F7")
def test_a_paused_log_stays_at_the_source_and_comes_whole_afterwards(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with machine.capture() as (capture, state):
        machine.work(capture, state)
        state.set_pace(log_paused=True)
        capture.step(0.0)
        end, told = capture.status().complete_scn, machine.database.acknowledged
        for value in ("a", "b", "c"):
            machine.update(ONE, 4, value)
        asked = state.submit(Scope.TABLE, TWO.table)
        for _ in range(20):
            assert not capture.step(0.0)
        assert capture.doing == "log paused"
        assert capture.status().complete_scn == end
        assert machine.database.acknowledged == told
        # No window could close meanwhile, so none was opened.
        assert state_of(state, asked) is RequestState.QUEUED
        state.set_pace(log_paused=False)
        machine.work(capture, state)
        assert capture.doing == "streaming"
        assert state_of(state, asked) is RequestState.COMPLETED
    assert [value for op, _, value in machine.ops(ONE, end) if op == "+U"] == ["a", "b", "c"]


@req("N07", "F7")
def test_the_log_is_delivered_at_its_rate_and_nothing_is_lost(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    clock = machine.clock = Clock()
    with machine.capture() as (capture, state):
        machine.work(capture, state)
        end, begun = capture.status().complete_scn, clock.now
        state.set_pace(log_rows_per_s=4.0)
        # An update is two change rows.
        for number in range(20):
            machine.update(ONE, number % 10, f"new {number}")
        while capture.status().complete_scn < machine.database.log[-1].scn:
            capture.step(0.0)
            clock.now += 0.1
            assert clock.now < begun + 100
        # Forty rows at four a second; the first come at once.
        assert 6 <= clock.now - begun <= 11
        assert capture.status().log_rows_per_s == 4.0
        # A limit that is lifted is lifted at once.
        state.set_pace(log_rows_per_s=0.0)
        machine.update(ONE, 1, "last")
        for _ in range(3):
            capture.step(0.0)
        assert capture.status().complete_scn == machine.database.log[-1].scn
    values = [value for op, _, value in machine.ops(ONE, end) if op == "+U"]
    assert values == [*(f"new {number}" for number in range(20)), "last"]


@req("P55")
def test_progress_tells_rate_and_time_left(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    clock = machine.clock = Clock()
    with machine.capture() as (capture, state):
        for chunks in (1, 2, 3):
            stop_after(machine, capture, state, chunks)
            clock.now += 1.5
        shown = state.progress()[0]
        assert (shown.rows_read, shown.rows_estimated) == (9, 10)
        assert shown.rows_per_s == pytest.approx(2.0)
        assert shown.seconds_left == pytest.approx(0.5)
        machine.work(capture, state)
        assert state.progress()[0].seconds_left is None


def test_a_long_rest_does_not_hold_the_change_log(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    clock = machine.clock = Clock()
    with machine.capture() as (capture, state):
        stop_after(machine, capture, state, 1)
        state.set_pace(delay_s=3_600.0)
        capture.step(0.0)
        held = machine.source.statements
        for number in range(5):
            machine.update(ONE, number, "later")
        while capture.step(0.0):
            pass
        capture.step(0.0)
        # No chunk was read; a snapshot saw what came, so nothing needs it any more.
        assert machine.source.statements == held
        assert capture.status().remembered == 0
        assert capture.coordinator is not None
        assert capture.coordinator.needed_scn >= machine.database.log[-1].scn
        clock.now += 3_600
        state.set_pace(delay_s=None)
        machine.work(capture, state)
    assert machine.completions() == [ONE.table, TWO.table, THREE.table]
