"""Dumps of a source that says by which order its keys are compared, over a scripted database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ConfigError
from headrace.model.schema import TableId
from headrace.sources.base import Bound, Chunk, ChunkReader
from headrace.state.records import OPEN, RequestState, Scope
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
