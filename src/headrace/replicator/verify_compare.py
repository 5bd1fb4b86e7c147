"""Compare one table of the source's snapshot with the target brought to the same transactions.

First 256 sums on either side; only ranges whose sums differ are looked at row by row, a bounded number of
rows at a time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.lake.digest import RangeSums, RowDigests, digest_rows
from headrace.lake.overlay import Overlay, Weights
from headrace.model.schema import TableId
from headrace.replicator.replicas import Shown
from headrace.replicator.verify_report import TableReport, Uncompared
from headrace.sources.database import View

__all__ = ["TargetTable", "compare", "drill", "passes", "range_sums"]

_DRILL_ROWS = 1_000_000
"""Rows of both sides that are compared one by one at a time."""
_KEY_HASHES = 20
"""Differing keys that a report names, by their digest."""


@dataclass(frozen=True, slots=True)
class TargetTable:
    """A target table at a frontier, and the later changes to lay over it.

    Attributes:
        shown: the target's tables.
        version: of the table, negative for none.
        scn: position that it reflects.
        tail: later changes, folded.
    """

    shown: Shown
    version: int
    scn: int
    tail: pa.Table

    def digests(self, view: View, table: TableId) -> Iterator[tuple[RowDigests, Weights | None]]:
        """Yield the digests of all rows, with how often each counts."""
        for batch, weights in self.rows(view, table):
            yield digest_rows(view.schemas[table], batch, view.form), weights

    def rows(self, view: View, table: TableId) -> Iterator[tuple[pa.RecordBatch, Weights | None]]:
        """Yield all rows in the view's shape, with how often each counts."""
        schema = view.schemas[table]
        yield from Overlay(schema, self.tail).rows(self.shown.rows(schema, self.version))

    def uncompared(self, table: TableId) -> Uncompared | None:
        """Return why the table has no rows that would be the source's, None when it has."""
        return self.shown.uncompared(table, self.version)


def compare(view: View, table: TableId, target: TargetTable) -> TableReport:
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


def range_sums(view: View, table: TableId, target: TargetTable) -> tuple[RangeSums, RangeSums]:
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

    def add(self, keys: pa.Table) -> None:
        """Take one row per key, as `drill` returns them."""
        both = _sum(pc.min_element_wise(keys["source"], keys["target"]))
        self.different += both
        self.missing += _sum(keys["source"]) - both
        self.extra += _sum(keys["target"]) - both
        room = _KEY_HASHES - len(self.keys)
        self.keys += [key.hex() for key in keys["key"].combine_chunks().sort()[:room].to_pylist()]


def _sum(values: pa.ChunkedArray) -> int:
    return int(pc.sum(values, min_count=0).as_py())


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


def drill(view: View, table: TableId, target: TargetTable, ranges: list[int]) -> pa.Table:
    """Return the keys of some ranges whose rows differ.

    Returns:
        ``key`` (hash, 16 bytes) and how many copies of its rows only one side has: ``source`` and ``target``.
    """
    parts = []
    for keys, rows in view.row_digests(table, ranges):
        parts.append(_copies(RowDigests(keys, rows), 1))
    for digests, weights in target.digests(view, table):
        mask = np.isin(digests.ranges, ranges)
        if mask.any():
            taken = -1 if weights is None else -weights[mask]
            parts.append(_copies(digests.pick(mask), taken))
    summed = pa.concat_tables(parts).group_by(["key", "row"]).aggregate([("copies", "sum")])
    found = summed.filter(pc.not_equal(summed["copies_sum"], 0))
    one_side = pa.table(
        {
            "key": found["key"],
            "source": pc.max_element_wise(found["copies_sum"], 0),
            "target": pc.max_element_wise(pc.negate(found["copies_sum"]), 0),
        }
    )
    both = one_side.group_by("key").aggregate([("source", "sum"), ("target", "sum")])
    return both.select(["key", "source_sum", "target_sum"]).rename_columns(
        ["key", "source", "target"]
    )


def _copies(digests: RowDigests, copies: int | Weights) -> pa.Table:
    return pa.table(
        {
            "key": _hashes(digests.keys),
            "row": _hashes(digests.rows),
            "copies": np.broadcast_to(np.asarray(copies, np.int64), (len(digests),)),
        }
    )


def _hashes(matrix: np.ndarray) -> pa.Array:
    """Return rows of 16 bytes as values that Arrow can group by."""
    data = np.ascontiguousarray(matrix)
    return pa.Array.from_buffers(pa.binary(16), len(data), [None, pa.py_buffer(data)])
