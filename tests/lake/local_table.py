"""A table that a test changes by our own commits, without Spark."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from headrace.lake import settle
from headrace.lake.checkpoint import is_due, write_checkpoint
from headrace.lake.commit import put_commit, transaction
from headrace.lake.delta_log import DeltaTable
from headrace.lake.evolution import create_actions
from headrace.lake.keyed import commit_keyed
from headrace.lake.multiset import commit_multiset
from headrace.lake.partitioning import Partitioning
from headrace.model.schema import KeyCheck, TableSchema
from headrace.store import Location


def keep_files_apart(monkeypatch: pytest.MonkeyPatch, *, rows: int = 5, size: int = 6_000) -> None:
    """Have files of a test's size stay where a batch would take them up, so that rows die in all the ways there are.

    Args:
        monkeypatch: of the test.
        rows: what counts as few in a file.
        size: bytes above which none is written again because it is small.
    """
    monkeypatch.setattr(settle, "_SMALL_ROWS", rows)
    monkeypatch.setattr(settle, "_SMALL_BYTES", size)


class LocalTable:
    def __init__(
        self,
        folder: Location,
        schema: TableSchema,
        *,
        vectors: bool = True,
        partition_by: tuple[str, ...] = (),
    ) -> None:
        self.folder = folder
        self.schema = schema
        self.table = DeltaTable(folder)
        parts = Partitioning(partition_by, partition_by)
        put_commit(folder, 0, create_actions(schema, vectors=vectors, partitioning=parts))

    def apply(self, folded: pa.Table, scn: int, *, complete: bool = True) -> None:
        snapshot = self.table.snapshot()
        keyless = self.schema.key_check is KeyCheck.NONE
        commit = commit_multiset if keyless else commit_keyed
        actions = commit(snapshot, self.schema, folded, complete=complete)
        put_commit(self.folder, snapshot.version + 1, [transaction("t", scn), *actions])
        if is_due(snapshot.version + 1, snapshot.properties):
            state = self.table.state(snapshot.version + 1)
            write_checkpoint(self.folder, snapshot.version + 1, state)

    def content(self, version: int | None = None) -> Counter[tuple[object, ...]]:
        rows = self.table.snapshot(version).to_table().to_pylist()
        return Counter(tuple(row.values()) for row in rows)

    def vectors(self) -> int:
        return sum(file.vector is not None for file in self.table.snapshot().files)
