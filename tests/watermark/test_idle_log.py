"""While nothing is dumped capture holds few rows of the log, and the dump that begins then misses none of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from headrace.sources.scripted.database import Change, Transaction
from headrace.state.store import Scope
from tests.requirements import req
from tests.watermark.machine import ONE, Machine

LITTLE = 512
"""Enough for the rows of a transaction, and an eighth of it is not."""


def committed(machine: Machine, key: int, value: str) -> Transaction:
    """Commit an update of one row that nobody sees yet."""
    old, new = machine.row(ONE, key), (key, value)
    transaction = machine.database.begin()
    transaction.changes = [Change(ONE.table, "-U", old), Change(ONE.table, "+U", new)]
    transaction.puts = [(ONE.table, "remove", old), (ONE.table, "add", new)]
    machine.database.commit(transaction)
    return transaction


@req("P47", "T7")
def test_few_rows_are_held_while_nothing_is_dumped(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.dump = replace(machine.dump, snapshot_interval_s=3_600.0, memory_bytes=LITTLE)
    with machine.capture() as (capture, state):
        machine.work(capture, state, lambda: any(p.chunks for p in state.progress()))
        hidden = committed(machine, 4, "hidden")
        machine.work(capture, state, lambda: any(p.chunks > 2 for p in state.progress()))
        assert capture._reconciler.nbytes > 0
        machine.database.reveal(hidden)
        machine.work(capture, state)
        later = committed(machine, 5, "hidden")
        while capture.step(0.0):
            pass
        assert capture.status().remembered >= 1
        assert capture._reconciler.nbytes == 0
        machine.database.reveal(later)


@req("P49")
def test_a_dump_reads_no_chunk_before_what_was_let_go_is_visible(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    machine.dump = replace(machine.dump, snapshot_interval_s=3_600.0, memory_bytes=LITTLE)
    with machine.capture() as (capture, state):
        machine.work(capture, state)
        hidden = committed(machine, 4, "new")
        while capture.step(0.0):
            pass
        end = machine.database.log[-1].scn
        request = state.submit(Scope.TABLE, ONE.table)
        for _ in range(50):
            capture.step(0.0)
        asked = [p for p in state.progress() if p.request_id == request]
        assert [p.chunks for p in asked] == [0]
        machine.database.reveal(hidden)
        machine.work(capture, state)
    assert dict(machine.read_rows(ONE, end))[4] == "new"
