"""Compare one table of the source's snapshot with the target brought to the same transactions.

First 256 sums on either side; only ranges whose sums differ are looked at row by row, a bounded number of
rows at a time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.fold import renamed
from headrace.lake.delta_log import DeltaTable
from headrace.lake.digest import RangeSums, RowDigests, digest_rows
from headrace.lake.evolution import later_names
from headrace.lake.ledger import table_path
from headrace.lake.modes import Mode, live_batches, mode_of, shaped
from headrace.lake.overlay import Overlay, Weights
from headrace.lake.settings import TableSettings
from headrace.lake.snapshot import Snapshot
from headrace.model.schema import TableId, TableSchema
from headrace.replicator.verify_report import TableReport, Uncompared
from headrace.sources.postgres.digest import SourceView

__all__ = ["TargetTable", "compare", "drill", "passes", "range_sums"]

_DRILL_ROWS = 1_000_000
"""Rows of both sides that are compared one by one at a time."""
_KEY_HASHES = 20
"""Differing keys that a report names, by their digest."""


@dataclass(frozen=True, slots=True)
class TargetTable:
    """A target table at a frontier, and the later changes to lay over it.

    Attributes:
        lake: root folder of the target.
        version: of the table, negative for none; see `shown_version`.
        scn: position that it reflects.
        tail: later changes, folded.
        settings: what was asked for the table.
    """

    lake: Path
    version: int
    scn: int
    tail: pa.Table
    settings: TableSettings = field(default_factory=TableSettings)

    def digests(
        self, view: SourceView, table: TableId
    ) -> Iterator[tuple[RowDigests, Weights | None]]:
        """Yield the digests of all rows, with how often each counts."""
        for batch, weights in self.rows(view, table):
            yield digest_rows(view.schemas[table], batch), weights

    def rows(
        self, view: SourceView, table: TableId
    ) -> Iterator[tuple[pa.RecordBatch, Weights | None]]:
        """Yield all rows in the view's shape, with how often each counts."""
        schema = view.schemas[table]
        yield from Overlay(schema, self.tail).rows(self._held(schema))

    def uncompared(self, table: TableId) -> Uncompared | None:
        """Return why the table has no rows that would be the source's, None when it has."""
        held = self._snapshot(table)
        if held is not None and mode_of(held) is Mode.APPEND:
            return "append"
        return "where" if self.settings.where is not None else None

    def _snapshot(self, table: TableId) -> Snapshot | None:
        """Return the table's version; one that never had a row may have no files yet."""
        if self.version < 0:
            return None
        return DeltaTable(table_path(self.lake, table)).snapshot(self.version)

    def _held(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """Yield the target's own live rows, their columns under the names that the view has for them."""
        held = self._snapshot(schema.table)
        if held is None:
            return
        mode, own = mode_of(held), self.settings.of_its_own(held)
        alike = [name for name in held.schema.names if name not in own]
        seen = self.settings.renamed(schema)
        names = later_names(replace(held, schema=held.schema_of(alike)), shaped(seen, mode))
        back = dict(zip(seen.names, schema.names, strict=True))
        names = {name: name for name in alike} if names is None else names
        for batch in live_batches(held, mode):
            yield renamed(batch, {name: back.get(later, later) for name, later in names.items()})


def compare(view: SourceView, table: TableId, target: TargetTable) -> TableReport:
    """Return what differs between the snapshot's table and the target's."""
    started = time.monotonic()
    source, ours = range_sums(view, table, target)
    found = _Differences()
    for ranges in passes(source, ours):
        found.add(drill(view, table, target, ranges))
    return TableReport(
        table=str(table),
        source_rows=source.rows,
        target_rows=ours.rows,
        missing=found.missing,
        extra=found.extra,
        different=found.different,
        equal=not source.differing(ours),
        target_version=target.version,
        frontier_scn=target.scn,
        seconds=round(time.monotonic() - started, 3),
        state="different" if source.differing(ours) else "equal",
        key_hashes=tuple(found.keys),
    )


def range_sums(
    view: SourceView, table: TableId, target: TargetTable
) -> tuple[RangeSums, RangeSums]:
    """Return counts and sums of every key range, of the source and of the target."""
    source, ours = RangeSums(), RangeSums()
    for number, count, total in view.range_sums(table):
        source.counts[number], source.sums[number] = count, total
    for digests, weights in target.digests(view, table):
        ours.add(digests, weights)
    return source, ours


class _Differences:
    """Counts of differing rows, summed over passes."""

    def __init__(self) -> None:
        self.missing = self.extra = self.different = 0
        self.keys: list[str] = []

    def add(self, keys: pl.DataFrame) -> None:
        """Take one row per key: ``key``, copies only the source has, copies only the target has."""
        both = keys.select(pl.min_horizontal("source", "target").sum()).item()
        self.different += both
        self.missing += keys["source"].sum() - both
        self.extra += keys["target"].sum() - both
        room = _KEY_HASHES - len(self.keys)
        self.keys += [key.hex() for key in keys["key"].sort().head(room)]


def passes(source: RangeSums, ours: RangeSums) -> Iterator[list[int]]:
    """Yield the differing ranges in groups that fit in memory."""
    group: list[int] = []
    rows = 0
    for number in source.differing(ours):
        size = source.counts[number] + abs(ours.counts[number])
        if group and rows + size > _DRILL_ROWS:
            yield group
            group, rows = [], 0
        group.append(number)
        rows += size
    if group:
        yield group


def drill(view: SourceView, table: TableId, target: TargetTable, ranges: list[int]) -> pl.DataFrame:
    """Return the keys of some ranges whose rows differ, with the copies that only one side has."""
    frames = []
    for keys, rows in view.row_digests(table, ranges):
        frames.append(_frame(RowDigests(keys, rows), 1))
    for digests, weights in target.digests(view, table):
        mask = np.isin(digests.ranges, ranges)
        if mask.any():
            taken = -1 if weights is None else -weights[mask]
            frames.append(_frame(digests.pick(mask), taken))
    copies = pl.col("copies")
    return (
        pl.concat(frames)
        .group_by("key", "row")
        .agg(copies.sum())
        .filter(copies != 0)
        .group_by("key")
        .agg(
            copies.filter(copies > 0).sum().alias("source"),
            -copies.filter(copies < 0).sum().alias("target"),
        )
    )


def _frame(digests: RowDigests, copies: int | Weights) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "key": pl.Series(_cells(digests.keys), dtype=pl.Binary),
            "row": pl.Series(_cells(digests.rows), dtype=pl.Binary),
            "copies": np.broadcast_to(np.asarray(copies, np.int64), (len(digests),)),
        }
    )


def _cells(matrix: np.ndarray) -> list[bytes]:
    data = matrix.tobytes()
    return [data[at : at + 16] for at in range(0, len(data), 16)]
