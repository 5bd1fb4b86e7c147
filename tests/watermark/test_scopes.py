"""Parts of tables: the rows of a condition, and keys with what became of the rows that are gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.fold import fold
from headrace.model.mark import Mark, MarkKind
from headrace.model.schema import KeyCheck
from headrace.sources.base import ReceivedMark
from headrace.sources.scripted.database import Change
from headrace.state.records import RequestState
from headrace.state.store import Scope
from headrace.testing.notation import table_of
from headrace.watermark.emit import chunk_block
from tests.requirements import req
from tests.watermark.machine import ONE, TWO, Machine
from tests.watermark.test_reconciler import chunk_rows


def same(machine: Machine, *keys: int) -> None:
    """Give rows one value, from the beginning of the log on."""
    for key in keys:
        machine.update(ONE, key, "same")


@req("N02", "P05")
def test_a_condition_reads_its_rows_in_chunks_and_completes_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.run()
    same(machine, 1, 3, 4, 6, 8)
    machine.run()
    done, begin = machine.completions(), machine.end_scn()
    asked = machine.submit(Scope.PREDICATE, ONE, predicate="c1 = 'same'")
    machine.run()

    assert machine.request(asked).state is RequestState.COMPLETED
    assert machine.read_rows(ONE, begin) == [(key, "same") for key in (1, 3, 4, 6, 8)]
    with machine.state() as state:
        (progress,) = state.progress(asked)
    assert (progress.state, progress.chunks, progress.completed_scn) == ("done", 2, 0)
    assert machine.completions() == done


def test_a_condition_goes_on_where_a_pause_left_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.run()
    same(machine, 1, 3, 4, 6, 8)
    machine.run()
    begin = machine.end_scn()
    asked = machine.submit(Scope.PREDICATE, ONE, predicate="c1 = 'same'")
    with machine.capture() as (capture, state):
        machine.work(capture, state, lambda: any(p.chunks for p in state.progress(asked)))
        state.move(asked, RequestState.PAUSED, since=[RequestState.ACTIVE])
        machine.work(capture, state)
    with machine.state() as state:
        state.move(asked, RequestState.QUEUED, since=[RequestState.PAUSED])
    machine.run()
    assert machine.read_rows(ONE, begin) == [(key, "same") for key in (1, 3, 4, 6, 8)]


def test_a_condition_that_holds_for_no_row_is_done_at_once(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.run()
    asked = machine.submit(Scope.PREDICATE, ONE, predicate="c1 = 'nobody'")
    machine.run()
    assert machine.request(asked).state is RequestState.COMPLETED


@req("C60")
def test_a_condition_that_the_source_refuses_fails_alone(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.run()
    bad = machine.submit(Scope.PREDICATE, ONE, predicate="nothing = 'x'")
    good = machine.submit(Scope.TABLE, TWO)
    machine.run()
    assert machine.request(bad).state is RequestState.FAILED
    assert "column nothing does not exist" in machine.request(bad).reason
    assert machine.request(good).state is RequestState.COMPLETED


def test_a_condition_on_a_table_that_is_being_copied_leaves_the_copy_alone(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with machine.capture() as (capture, state):
        machine.work(capture, state, lambda: any(p.chunks == 2 for p in state.progress()))
        asked = state.submit(Scope.PREDICATE, ONE.table, predicate="c1 = 'v9'", priority=5)
        machine.work(capture, state)
    assert machine.request(asked).state is RequestState.COMPLETED
    assert sorted(machine.read_rows(ONE)) == sorted(
        [*((key, f"v{key}") for key in range(10)), (9, "v9")]
    )


@req("H09", "A-14")
def test_keys_are_those_that_the_source_calls_so(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.run()
    begin = machine.end_scn()
    with machine.state() as state:
        asked = state.submit(
            Scope.PRIMARY_KEYS, ONE.table, [("003",), ("3",), ("77",)], delete_missing=True
        )
    machine.run()
    # 003 is 3: read once, and surely not missing.
    assert machine.ops(ONE, begin) == [("+R", 3, "v3"), ("-D", 77, None)]
    assert machine.request(asked).missing == (("77",),)


@req("P06", "H09")
def test_rows_that_the_source_lost_are_deleted_when_asked(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.run()
    begin = machine.end_scn()
    # The source was restored from a backup: rows 3 and 5 are gone, and no log says so.
    for key in (3, 5):
        machine.database.rows[ONE.table][(key, f"v{key}")] -= 1
    told = machine.submit(Scope.PRIMARY_KEYS, ONE, 3, 4)
    machine.run()
    assert machine.ops(ONE, begin) == [("+R", 4, "v4")]
    assert machine.request(told).missing == (("3",),)

    begin = machine.end_scn()
    asked = machine.submit(Scope.PRIMARY_KEYS, ONE, 3, 4, 5, delete_missing=True)
    machine.run()
    assert machine.ops(ONE, begin) == [("+R", 4, "v4"), ("-D", 3, None), ("-D", 5, None)]
    assert machine.request(asked).missing == (("3",), ("5",))
    with machine.state() as state:
        assert state.progress(asked)[0].rows_emitted == 3


@req("P06", "P44")
@pytest.mark.parametrize("visible", [True, False], ids=["after the select", "before, unseen"])
def test_a_missing_key_that_the_log_speaks_of_is_left_to_the_log(
    tmp_path: Path, visible: bool
) -> None:
    machine = Machine(tmp_path)
    machine.run()
    begin = machine.end_scn()
    before, calls = machine.source.statements, 0

    def insert() -> None:
        transaction = machine.database.begin()
        transaction.changes = [Change(ONE.table, "+I", (50, "fresh"))]
        transaction.puts = [(ONE.table, "add", (50, "fresh"))]
        machine.database.commit(transaction)
        if visible:
            machine.database.reveal(transaction)

    def weather() -> None:
        nonlocal calls
        if machine.source.statements == before + 2:
            calls += 1
            # The select is the second statement, looked at before it and behind it.
            if calls == (2 if visible else 1):
                insert()

    machine.submit(Scope.PRIMARY_KEYS, ONE, 50, 60, delete_missing=True)
    machine.weather = weather
    machine.run()
    assert machine.ops(ONE, begin) == [("+I", 50, "fresh"), ("-D", 60, None)]


@req("P06")
@pytest.mark.parametrize("check", [KeyCheck.IMMEDIATE, KeyCheck.DEFERRED])
def test_a_delete_of_a_window_folds_for_every_kind_of_key(check: KeyCheck) -> None:
    schema = replace(table_of(2), key_check=check)
    rows, gone = chunk_rows(schema, [(1, "a")]), chunk_rows(schema, [(2, None)])
    mark = ReceivedMark(Mark(MarkKind.HIGH, "token", "run"), 500, 0)
    block = chunk_block(mark, schema, rows, gone, announce=True)

    assert int(block.index["changes"][0]) == 3
    (body,) = block.bodies
    assert body.batch.column("_ord").to_pylist() == [1, 2]
    folded = fold(schema, [body.batch]).to_pylist()
    assert {(row["_effect"], row["k"], row["c1"]) for row in folded} == {
        ("ROW", 1, "a"),
        ("DEAD", 2, None),
    }
