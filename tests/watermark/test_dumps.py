"""Requests carried out by capture and coordinator over a scripted database: what is read, and in which windows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from headrace.model.mark import MarkKind
from headrace.observe import failpoints
from headrace.state.store import RequestState, Scope
from tests.requirements import req
from tests.watermark.machine import CHUNK, ONE, THREE, TWO, Crash, Machine, windows


@req("H08", "P19")
@pytest.mark.parametrize("windows_before", range(1, 12))
def test_a_dump_over_all_tables_goes_on_where_a_crash_left_it(
    tmp_path: Path, windows_before: int
) -> None:
    machine = Machine(tmp_path)
    left = windows_before

    def die() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Crash

    failpoints.arm("window.after_emit", die)
    machine.run()
    machine.run()

    progress = machine.progress()
    assert list(progress) == [ONE.table, TWO.table, THREE.table]
    for schema in (ONE, TWO, THREE):
        assert progress[schema.table].state == "done"
        # Ten rows in chunks of three, none read twice but those of the window that died.
        assert progress[schema.table].rows_read == 10
        assert set(machine.read_rows(schema)) == {(key, f"v{key}") for key in range(10)}
    total = sum(len(machine.read_rows(schema)) for schema in (ONE, TWO, THREE))
    assert 30 <= total <= 30 + CHUNK
    ends = [entry.completed_scn for entry in progress.values()]
    assert ends == sorted(ends)
    # From there on the log has the whole dump, the process that died before its end included.
    for end, schema in zip(machine.ends(), (ONE, TWO, THREE), strict=True):
        from_scn = end.payload["first_scn"]
        assert from_scn == progress[schema.table].first_scn
        assert len(set(machine.read_rows(schema, from_scn - 1))) == 10
        assert len(set(machine.read_rows(schema, from_scn))) < 10


@req("H10", "T10")
@pytest.mark.parametrize(
    "place",
    ["window.after_emit", "log.before_sync", "capture.after_sync", "capture.after_progress"],
)
def test_progress_is_never_ahead_of_the_rows_in_the_change_log(tmp_path: Path, place: str) -> None:
    machine = Machine(tmp_path)
    deaths = 0
    died = True
    # Each process comes one pass further than the one before, so every kind of write is hit.
    while died:
        left, died = deaths + 1, False

        def die() -> None:
            nonlocal left, died
            left -= 1
            died = left == 0
            if died:
                raise Crash

        failpoints.arm(place, die)
        machine.run()
        deaths += died

    assert deaths > 3
    for schema in (ONE, TWO, THREE):
        assert machine.progress()[schema.table].state == "done"
        assert set(machine.read_rows(schema)) == {(key, f"v{key}") for key in range(10)}
    total = sum(len(machine.read_rows(schema)) for schema in (ONE, TWO, THREE))
    assert total <= 30 + deaths * CHUNK


@req("T5")
def test_two_dumps_never_share_a_window(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.run()
    before = len(windows(machine))
    for schema in (ONE, TWO):
        machine.submit(Scope.TABLE, schema)
    machine.run()

    found = windows(machine)[before:]
    # Four chunks and an end for each of the two, every one under a token of its own.
    chunk, end = [MarkKind.LOW, MarkKind.HIGH], [MarkKind.END]
    assert [kinds for _, kinds in found] == [chunk, chunk, chunk, chunk, end] * 2
    open_tokens: set[str] = set()
    for transaction in machine.database.log:
        if transaction.mark and transaction.mark.kind is MarkKind.LOW:
            assert not open_tokens
            open_tokens.add(transaction.mark.token)
        elif transaction.mark and transaction.mark.kind is MarkKind.HIGH:
            open_tokens.remove(transaction.mark.token)


@req("H09", "A-14", "P44")
def test_a_repair_by_key_is_a_window_and_lists_the_keys_that_are_gone(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.run()
    copied = machine.progress()[ONE.table].completed_scn
    before = machine.source.statements
    calls = Counter[int]()

    def weather() -> None:
        statement = machine.source.statements - before
        calls[statement] += 1
        # The second statement is the select; it is over when the weather changes again.
        if statement == 2 and calls[statement] == 2:
            machine.update(ONE, 4, "newer")

    request = machine.submit(Scope.PRIMARY_KEYS, ONE, 3, 4, 77)
    machine.weather = weather
    machine.run()

    done = machine.request(request)
    assert done.state is RequestState.COMPLETED
    assert done.missing == (("77",),)
    assert [kinds for _, kinds in windows(machine)][-1] == [MarkKind.LOW, MarkKind.HIGH]
    # Key 4 changed inside the window: its log row counts, the row that was read does not.
    later = machine.read_rows(
        ONE, max(entry.completed_scn for entry in machine.progress().values())
    )
    assert later == [(3, "v3")]
    assert machine.progress()[ONE.table].completed_scn == copied
