"""Dumps of a source that says by which order its keys are compared, over a scripted database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ConfigError
from headrace.model.schema import TableId
from headrace.sources.base import Bound, CanonicalKeys, Chunk, ChunkReader
from headrace.state.records import OPEN, Cause, RequestState, Scope
from tests.requirements import req
from tests.watermark.machine import ONE, Machine

CHUNK_READS = 2
"""After so many the key is another one."""


class Ordered:
    """Chunks of another reader, under one order at first and then under the next."""

    def __init__(self, chunks: ChunkReader, orders: tuple[str, str]) -> None:
        self._chunks = chunks
        self._orders = orders
        self.reads = self.starts = 0
        self.refuses = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chunks, name)

    @property
    def order(self) -> str:
        return self._orders[self.reads > CHUNK_READS]

    def upper_bound(self, table: TableId, predicate: str | None = None) -> Bound:
        self.starts += 1
        return replace(self._chunks.upper_bound(table, predicate), key_order=self.order)

    def read(self, *asked: Any) -> Chunk:
        self.reads += 1
        if self.refuses and self.reads > CHUNK_READS:
            raise ConfigError("a key has 2 columns", next_step="give both.")
        return replace(self._chunks.read(*asked), key_order=self.order)

    def read_keys(self, table: TableId, keys: Sequence[Sequence[str]]) -> Chunk:
        return replace(self._chunks.read_keys(table, keys), key_order=self.order)

    def canonical_keys(self, table: TableId, keys: Sequence[Sequence[str]]) -> CanonicalKeys:
        if self.refuses:
            raise ConfigError("a key has 2 columns", next_step="give both.")
        return replace(self._chunks.canonical_keys(table, keys), key_order=self.order)


def ordered(machine: Machine, monkeypatch: pytest.MonkeyPatch, orders: tuple[str, str]) -> Ordered:
    chunks = Ordered(machine.source.chunks(), orders)
    monkeypatch.setattr(machine.source, "chunks", lambda: chunks)
    return chunks


@req("A-11")
def test_a_dump_whose_key_changes_begins_anew_without_the_list_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path)
    chunks = ordered(machine, monkeypatch, ("old", "new"))
    machine.submit(Scope.TABLE, ONE)
    with machine.state() as state:
        # No number, as every key of now is: it would be an error to ask for it.
        state.write([lambda w: w.add_reread(ONE.table, [("key of before",)])])
    with machine.capture() as (capture, state):
        machine.work(capture, state, lambda: chunks.starts == 2)
        machine.work(capture, state, lambda: state.requests()[0].state not in OPEN)
        (copy,) = state.progress(state.requests()[0].request_id)
        assert (copy.state, copy.key_order) == ("done", "new")
        assert (copy.rows_read, copy.rows_voided) == (6 + 10, 3)
        assert state.reread(ONE.table) == []
    rows = machine.read_rows(ONE)
    assert set(rows) == {(key, f"v{key}") for key in range(10)}


@req("A-11")
@pytest.mark.parametrize(
    ("now", "ends"), [("new", RequestState.COMPLETED), ("old", RequestState.FAILED)]
)
def test_refused_bounds_are_an_error_only_where_the_key_is_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: str, ends: RequestState
) -> None:
    machine = Machine(tmp_path)
    chunks = ordered(machine, monkeypatch, ("old", now))
    chunks.refuses = True
    request = machine.submit(Scope.TABLE, ONE)
    with machine.capture() as (capture, state):

        def decided() -> bool:
            # The new key's bounds are taken.
            chunks.refuses = chunks.refuses and chunks.starts < 3
            found = state.request(request)
            return found is not None and found.state not in OPEN

        machine.work(capture, state, decided)
        found = state.request(request)
        assert found is not None
        assert found.state is ends
        assert ("2 columns" in found.reason) is (ends is RequestState.FAILED)


def changed(chunks: Ordered) -> None:
    """Have the key be another one from here on."""
    chunks.reads = CHUNK_READS + 1


@req("A-11", "H09")
@pytest.mark.parametrize("refused", [False, True], ids=["found nowhere", "refused"])
@pytest.mark.parametrize("restart", [False, True], ids=["at once", "after a restart"])
def test_keys_are_read_by_the_key_of_their_beginning_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: bool, restart: bool
) -> None:
    machine = Machine(tmp_path)
    machine.run()
    before = machine.end_scn()
    chunks = ordered(machine, monkeypatch, ("old", "new"))
    request = machine.submit(Scope.PRIMARY_KEYS, ONE, *range(5), 77, delete_missing=True)
    with machine.capture() as (capture, state):
        machine.work(capture, state, lambda: [p.keys_done for p in state.progress(request)] == [3])
        assert state.progress(request)[0].key_order == "old"
        changed(chunks)
        chunks.refuses = refused
        if not restart:
            machine.work(capture, state)
    machine.run()
    found = machine.request(request)
    assert (found.state, found.missing) == (RequestState.FAILED, ())
    assert "has another key" in found.reason
    assert [key for _, key, _ in machine.ops(ONE, before)] == [0, 1, 2]


@req("A-11", "H26")
def test_a_gap_stays_open_when_its_repair_was_compared_by_another_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path)
    machine.run()
    before = machine.end_scn()
    ordered(machine, monkeypatch, ("new", "new"))
    repair = {"cause": Cause.GAP, "delete_missing": True}
    with machine.state() as state:
        state.write(
            [
                lambda w: w.set_gap(ONE.table, open_=True),
                # No number, as every key of now is: it would be an error to ask for it.
                lambda w: w.add_reread(ONE.table, [("key of before",)]),
            ]
        )
    old = machine.submit(Scope.REPAIR, ONE, 3, 77, key_order="old", **repair)
    machine.run()
    assert machine.request(old).state is RequestState.FAILED
    assert "compared again" in machine.request(old).reason
    assert machine.ops(ONE, before) == []
    with machine.state() as state:
        # What was on the list is for the comparison to find.
        assert (state.gaps(), state.reread(ONE.table)) == ({ONE.table}, [])
    new = machine.submit(Scope.REPAIR, ONE, 3, 77, key_order="new", **repair)
    machine.run()
    assert machine.request(new).state is RequestState.COMPLETED
    assert machine.ops(ONE, before) == [("+R", 3, "v3"), ("-D", 77, None)]
    with machine.state() as state:
        assert state.gaps() == set()


@req("A-11", "H26")
def test_a_repair_whose_key_changes_before_its_list_is_read_is_compared_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path)
    machine.run()
    chunks = ordered(machine, monkeypatch, ("old", "new"))
    with machine.state() as state:
        state.write(
            [
                lambda w: w.set_gap(ONE.table, open_=True),
                lambda w: w.add_reread(ONE.table, [("3",)]),
            ]
        )
    request = machine.submit(Scope.REPAIR, ONE, key_order="old", cause=Cause.GAP)
    changed(chunks)
    machine.run()
    assert machine.request(request).state is RequestState.FAILED
    with machine.state() as state:
        assert (state.gaps(), state.reread(ONE.table)) == ({ONE.table}, [])
