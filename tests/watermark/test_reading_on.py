"""The next chunk is read while the last one is written, and the log is held up only where it brings nothing."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from headrace.model.schema import TableId
from headrace.observe import failpoints
from headrace.watermark.pace import Chunked, Pacer
from tests.requirements import req
from tests.watermark.machine import ONE, TWO, Machine


def chunks_of(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> list[Chunked]:
    """Copy everything; return what each chunk took."""
    took: list[Chunked] = []

    def note(pacer: Pacer, chunk: Chunked, table: TableId | None) -> None:
        took.append(chunk)

    monkeypatch.setattr(Pacer, "took", note)
    machine.run()
    assert machine.read_rows(TWO)
    return took


def test_a_log_without_changes_is_a_quiet_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {chunk.quiet for chunk in chunks_of(Machine(tmp_path), monkeypatch)} == {True}


@req("N09", "P48")
def test_a_change_of_any_table_inside_the_window_makes_it_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, values = Machine(tmp_path), iter(range(6))

    def weather() -> None:
        if machine.database.backlog < 3 and (value := next(values, None)) is not None:
            machine.update(TWO, 4, f"x{value}")

    machine.weather = weather
    found = [chunk.quiet for chunk in chunks_of(machine, monkeypatch)]
    # It ends quiet: the last updates came before the last chunks.
    assert (found[0], found[-1]) == (False, True)


@pytest.mark.parametrize(("heard_every_s", "reads_on"), [(3_600.0, True), (0.0, False)])
def test_the_next_select_does_not_wait_for_the_rows_of_the_last(
    tmp_path: Path, heard_every_s: float, reads_on: bool
) -> None:
    machine = Machine(tmp_path)
    machine.dump = replace(machine.dump, request_interval_s=heard_every_s)
    seen: list[tuple[str, int]] = []

    def note(name: str) -> None:
        seen.append((name, machine.source.statements))

    with machine.capture() as (capture, state):
        for name in ("capture.after_append", "window.before_emit", "capture.after_sync"):
            failpoints.arm(name, partial(note, name))
        machine.work(capture, state, lambda: any(p.completed_scn for p in state.progress()))
    between = [
        after - before
        for (what, before), (then, after) in itertools.pairwise(seen)
        if (what, then) == ("capture.after_append", "window.before_emit")
    ]
    assert len(between) > 3
    assert any(between) is reads_on
    machine.run()
    assert set(machine.read_rows(ONE)) == {(key, f"v{key}") for key in range(10)}


def test_people_are_heard_while_a_chunk_is_read_so_that_the_next_need_not_wait(
    tmp_path: Path,
) -> None:
    machine, now = Machine(tmp_path), [0.0]
    machine.clock = lambda: now[0]
    machine.dump = replace(machine.dump, request_interval_s=0.5)
    begun: list[int] = []

    with machine.capture() as (capture, state):
        coordinator = capture.coordinator
        assert coordinator is not None
        for point in ("capture.after_append", "window.before_emit"):
            failpoints.arm(point, lambda: begun.append(machine.source.statements))
        while not machine.database.backlog:
            capture.step(0.0)
        # As when the log brings nothing for a while.
        capture._pay()
        coordinator.tick()
        # A long select: half a second has passed when the log brings its marks.
        now[0] += 1.0
        coordinator.tick()
        begun.clear()
        while not any(p.chunks for p in state.progress()):
            capture.step(0.0)
    assert begun[-1] > begun[-2]


def test_what_waits_behind_a_window_is_in_the_log_before_the_progress_is_written(
    tmp_path: Path,
) -> None:
    machine, seen = Machine(tmp_path), list[str]()
    machine.dump = replace(machine.dump, request_interval_s=3_600.0)
    values = iter(range(50))

    def weather() -> None:
        if machine.database.backlog < 3 and (value := next(values, None)) is not None:
            machine.update(TWO, 4, f"x{value}")

    machine.weather = weather
    steps = ("append", "sync", "progress", "acknowledge")
    with machine.capture() as (capture, state):
        failpoints.arm("window.before_emit", partial(seen.append, "window"))
        for name in steps:
            failpoints.arm(f"capture.after_{name}", partial(seen.append, name))
        machine.work(capture, state, lambda: any(p.completed_scn for p in state.progress()))
    story = " ".join(seen)
    assert "window sync append sync progress acknowledge" in story
    # Once: the next round writes both.
    assert "sync append sync append sync" not in story


def test_a_window_that_is_slow_to_write_is_foretold_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next chunk begins before its rows are written, so its size goes by what writing took before."""
    machine = Machine(tmp_path)
    ticks = itertools.count()
    late = [0.0]
    machine.clock = lambda: next(ticks) * 1e-6 + late[0]

    def slow() -> None:
        late[0] += 7.0

    failpoints.arm("window.before_emit", slow)
    try:
        found = chunks_of(machine, monkeypatch)
    finally:
        failpoints.disarm("window.before_emit")
    took = [chunk.emitted - chunk.received for chunk in found if chunk.rows]
    # All chunks are of as many rows.
    assert took[0] < 1
    assert took[1] == pytest.approx(7.0, abs=0.1)


def test_an_answer_that_no_mark_announces_is_looked_for_soon(tmp_path: Path) -> None:
    """A dump begins with several, and the log brings nothing that would wake whoever waits for it."""
    machine = Machine(tmp_path)
    with machine.capture() as (capture, _state):
        coordinator = capture.coordinator
        assert coordinator is not None
        assert capture._patience(1.0) == 1.0
        coordinator.tick()
        # The table's shape and bound are asked for, outside any window.
        awaits = coordinator.awaits_answer
        assert awaits
        assert capture._patience(1.0) < 0.01
        # The answer is here, and the first chunk begins with it.
        coordinator.tick()
        assert machine.database.backlog
        assert not coordinator.awaits_answer
        assert capture._patience(1.0) == 1.0
