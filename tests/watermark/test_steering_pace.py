"""The pace of dumps and log, changed while they run, and what people are told of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.relay.capture import Capture
from headrace.state.records import RequestState, Turn
from headrace.state.store import Scope, StateStore
from tests.requirements import req
from tests.watermark.machine import ONE, THREE, TWO, Machine
from tests.watermark.steering import (
    ALL_ROWS,
    Clock,
    first_request,
    pause,
    resume,
    state_of,
    stop_after,
)


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


@req("N05", "P57")
def test_a_pace_set_before_a_request_holds_from_its_first_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path)
    clock = machine.clock = Clock()
    machine.dump = replace(machine.dump, request_interval_s=1.0)
    with machine.capture() as (capture, state):
        while state_of(state, first_request(state)) is not RequestState.COMPLETED:
            capture.step(0.0)
            clock.now += 0.1
        look = state.line
        asked: list[str] = []

        def just_before_requests_are_looked_for() -> list[Turn]:
            if not asked:
                state.set_pace(chunk_rows=2, delay_s=10.0)
                asked.append(state.submit(Scope.TABLE, ONE.table))
            return look()

        monkeypatch.setattr(state, "line", just_before_requests_are_looked_for)
        clock.now += 20.0
        for _ in range(40):
            capture.step(0.0)
            clock.now += 0.1
        assert [(p.chunks, p.rows_read) for p in state.progress(asked[0])] == [(1, 2)]


@req("N03")
def test_tables_have_chunk_sizes_of_their_own(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    sizes = {str(ONE.table): 2, f"{ONE.table.schema}.*": 10}
    machine.dump = type(machine.dump)(
        chunk_rows=5, snapshot_interval_s=0.0, request_interval_s=0.0, table_chunk_rows=sizes
    )
    with machine.capture() as (capture, state):
        machine.work(capture, state)
        # Ten rows each, and the first pattern counts.
        chunks = {p.table: p.chunks for p in state.progress()}
        assert chunks == {ONE.table: 5, TWO.table: 1, THREE.table: 1}
        state.set_pace(chunk_rows=3)
        asked = state.submit(Scope.TABLE, ONE.table)
        machine.work(capture, state)
        assert [p.chunks for p in state.progress(asked)] == [4]
    assert machine.read_rows(ONE) == ALL_ROWS * 2


@req("H19")
def test_a_request_may_have_a_pace_of_its_own(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    clock = machine.clock = Clock()
    with machine.capture() as (capture, state):
        machine.work(capture, state)
        state.set_pace(chunk_rows=10)
        first, second = (state.submit(Scope.TABLE, ONE.table) for _ in range(2))
        assert state.steer(first, pace={"chunk_rows": 2, "delay_s": 5.0})
        for _ in range(100):
            capture.step(0.0)
            clock.now += 0.25
        assert [p.chunks for p in state.progress(first)] == [4], "25 seconds, and 5 after each"
        # It is held to what it has of its own, also when that changes in the middle.
        assert state.steer(first, pace={"chunk_rows": None, "delay_s": None})
        clock.now += 5.0
        machine.work(capture, state)
        assert [p.chunks for p in state.progress(first)] == [5]
        assert [p.chunks for p in state.progress(second)] == [1]
        assert not state.steer(first, pace={"chunk_rows": 2}), "it has ended"
    assert machine.read_rows(ONE) == ALL_ROWS * 3


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


@req("P55")
@pytest.mark.parametrize("held", ["request", "log", "capture"])
def test_time_in_which_people_held_a_dump_is_not_counted(tmp_path: Path, held: str) -> None:
    machine = Machine(tmp_path)
    clock = machine.clock = Clock()

    def read(capture: Capture, state: StateStore, chunks: int) -> None:
        while sum(entry.chunks for entry in state.progress()) < chunks:
            capture.step(0.0)
            clock.now += 0.1

    with machine.capture() as (capture, state):
        state.set_pace(chunk_rows=2, delay_s=0.7)
        read(capture, state, 3)
        before = state.progress()[0].rows_per_s
        assert 1.0 < before < 10.0
        if held == "request":
            asked = first_request(state)
            pause(state, asked)
            capture.step(0.0)
            clock.now += 1000.0
            resume(state, asked)
        elif held == "log":
            clock.now += 0.7
            # The next chunk is under way, and its mark comes when the log goes on.
            capture.step(0.0)
            state.set_pace(log_paused=True)
            for _ in range(3):
                capture.step(0.0)
                clock.now += 500.0
            state.set_pace(log_paused=False)
            clock.now += 1.0
        if held != "capture":
            read(capture, state, 4)
            assert state.progress()[0].rows_per_s == before
    if held == "capture":
        clock.now += 1000.0
        with machine.capture() as (capture, state):
            read(capture, state, 4)
            assert state.progress()[0].rows_per_s == before


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
