"""A table of some mode that a test brings through a random life, without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.lake.batch import commit_batch
from headrace.lake.commit import put_commit, transaction
from headrace.lake.delta_log import DeltaTable
from headrace.lake.evolution import create_actions
from headrace.lake.modes import COMMITTED_AT, Mode, live_batches, logged_schema, shaped
from headrace.lake.partitioning import Partitioning
from headrace.model.schema import TableSchema
from headrace.testing.lives import Transaction
from headrace.testing.notation import MISSING, change_batch

Cells = tuple[Any, ...]


def logged(schema: TableSchema, life: Sequence[Transaction]) -> pa.Table:
    """Return the changes of some transactions as a mode's kernel takes them."""
    rows = [row for one in life for row in one.rows]
    nothing = (None,) * len(schema.columns)
    rows += [(scn, order, "T", nothing) for one in life for scn, order in one.truncates]
    times = {one.scn: one.commit_us for one in life}
    changes = pa.Table.from_batches([change_batch(schema, sorted(rows, key=lambda r: r[:2]))])
    at = pa.array([times[scn] for scn in changes["_scn"].to_pylist()], pa.timestamp("us", "UTC"))
    return changes.add_column(4, COMMITTED_AT, at).cast(logged_schema(schema))


class KeptTable:
    def __init__(
        self,
        folder: Path,
        schema: TableSchema,
        mode: Mode,
        *,
        vectors: bool = True,
        partition_by: tuple[str, ...] = (),
    ) -> None:
        self.folder = folder
        self.schema = schema
        self.mode = mode
        self.table = DeltaTable(folder)
        parts = Partitioning(partition_by, partition_by)
        made = create_actions(shaped(schema, mode), vectors=vectors, partitioning=parts)
        put_commit(folder, 0, made)

    def apply(self, life: Sequence[Transaction], *, complete: bool = True) -> None:
        snapshot = self.table.snapshot()
        changes = logged(self.schema, life)
        actions = commit_batch(snapshot, self.schema, self.mode, changes, complete=complete)
        position = transaction("t", life[-1].scn)
        put_commit(self.folder, snapshot.version + 1, [position, *actions])

    def rows(self, *, without: Sequence[str] = ()) -> Counter[Cells]:
        """Return the rows, times as microseconds."""
        held = self.table.snapshot().to_table().drop_columns(list(without))
        for place, field in enumerate(held.schema):
            if pa.types.is_timestamp(field.type):
                held = held.set_column(place, field.name, held[field.name].cast(pa.int64()))
        return Counter(tuple(row.values()) for row in held.to_pylist())

    def live(self) -> Counter[Cells]:
        """Return the rows that are said to be the source's now, without the mode's own columns."""
        held = self.table.snapshot()
        batches = live_batches(held, self.mode)
        rows = pa.Table.from_batches(batches, schema=held.schema).select(self.schema.names)
        return Counter(tuple(row.values()) for row in rows.to_pylist())

    def as_of(self, scn: int, commit_us: int) -> tuple[dict[int, Cells], dict[int, Cells]]:
        """Return the rows of a history as of an SCN, and as of a time, by key."""
        by_scn: dict[int, Cells] = {}
        by_time: dict[int, Cells] = {}
        width = len(self.schema.columns)
        for row in self.rows():
            begun_us, ended_us, begun, ended, _ = row[width:]
            if begun <= scn and (ended is None or scn < ended):
                assert by_scn.setdefault(row[0], row[:width]) == row[:width]
            if begun_us <= commit_us and (ended_us is None or commit_us < ended_us):
                assert by_time.setdefault(row[0], row[:width]) == row[:width]
        return by_scn, by_time


def appended(schema: TableSchema, life: Sequence[Transaction]) -> Counter[Cells]:
    """Return the rows of a table of changes."""
    rows: list[Cells] = []
    for one in life:
        for scn, order, op, cells in one.rows:
            names = [n for n, cell in zip(schema.names, cells, strict=True) if cell == MISSING]
            plain = tuple(None if cell == MISSING else cell for cell in cells)
            rows.append((*plain, op, scn, order, one.commit_us, ",".join(names) or None))
        nothing = (None,) * len(schema.columns)
        rows += [(*nothing, "T", scn, order, one.commit_us, None) for scn, order in one.truncates]
    return Counter(rows)
