"""The changes between a target's frontier and a snapshot of the source, folded.

A snapshot is no prefix of commit order: of the transactions above the frontier exactly those are taken that the
snapshot sees. Windows of chunk rows are left out; they only restate what the log says, and a table is compared only
once its dump is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.changelog.reader import ChangeLogReader
from headrace.fold import combine, fold, folded_schema, promote
from headrace.model.block import ORIGIN_LOG, Block, SystemKind
from headrace.model.schema import TableId, TableSchema
from headrace.model.snapshot import YES, Visibility
from headrace.model.succession import NO_NUMBERS, Numbers, successors, told_numbers
from headrace.sources.base import SchemaStore

__all__ = ["LogView", "fold_tail"]

_FOLD_ROWS = 250_000
"""Change rows gathered before they are folded; bounds memory when the target is far behind."""


@dataclass(frozen=True, slots=True)
class LogView:
    """Which transactions of the change log a snapshot of the source sees.

    Attributes:
        seen: SCNs of the transactions it sees, rising.
        first_unseen: the lowest SCN it does not see, None when it sees all.
    """

    seen: npt.NDArray[np.int64]
    first_unseen: int | None

    @classmethod
    def of(cls, reader: ChangeLogReader, snapshot: Visibility, since_scn: int = 0) -> LogView:
        """Return the view that a snapshot has of everything in the log now.

        Args:
            reader: of the change log.
            snapshot: of the source.
            since_scn: all up to here counts as seen; it belongs to earlier lives of the source, whose ids mean others.
        """
        index = reader.index(reader.tail().oldest_scn)
        log = index[index["origin"] == ORIGIN_LOG]
        scn = log["scn"].astype(np.int64)
        seen = (snapshot.sees(log["xid"].astype(np.int64), scn) == YES) | (scn <= since_scn)
        unseen = scn[~seen]
        return cls(np.unique(scn[seen]), int(unseen.min()) if len(unseen) else None)

    @property
    def last_seen(self) -> int:
        """The highest SCN it sees, 0 when none."""
        return int(self.seen[-1]) if len(self.seen) else 0


def fold_tail(
    reader: ChangeLogReader,
    registry: SchemaStore,
    schemas: Mapping[TableId, TableSchema],
    applied: Mapping[TableId, int],
    view: LogView,
) -> dict[TableId, pa.Table]:
    """Return per table the folded changes above its applied SCN that the view sees.

    Args:
        reader: of the change log.
        registry: shapes of the log's table versions.
        schemas: the tables, in the shape to bring the changes to.
        applied: position each table's target reflects.
        view: the transactions to take.

    Raises:
        ScnNotFound: the log no longer holds everything above an applied SCN.
    """
    tails = {table: _Tail(schema, applied[table]) for table, schema in schemas.items()}
    after = min(applied.values(), default=view.last_seen)
    if after < view.last_seen:
        for block in reader.blocks(after, view.last_seen):
            for table, tail in tails.items():
                tail.take(table, block, registry, view.seen)
    return {table: tail.folded() for table, tail in tails.items()}


@dataclass(slots=True)
class _Tail:
    """One table's changes on their way into the folded form."""

    schema: TableSchema
    applied: int
    known: dict[int, Numbers] = field(default_factory=dict)
    rows: int = 0
    batches: list[pa.RecordBatch] = field(default_factory=list)
    truncates: list[tuple[int, int]] = field(default_factory=list)
    effects: pa.Table | None = None

    def take(
        self,
        table: TableId,
        block: Block,
        registry: SchemaStore,
        seen: npt.NDArray[np.int64],
    ) -> None:
        self._learn(table, block)
        found = []
        for body in block.bodies:
            if body.table == table:
                scn = body.batch.column("_scn").to_numpy()
                keep = (scn > self.applied) & _among(scn, seen)
                old = registry.get(body.schema_id)
                rows = body.batch.filter(pa.array(keep))
                found.append(promote(rows, old, self.schema, self._later_names(old)))
        self._append(found)
        for event in block.system:
            truncates = event.kind is SystemKind.TRUNCATE and event.table == table
            if truncates and event.scn > self.applied and event.scn in seen:
                self.truncates.append((event.scn, event.ord))
        # Deferred keys may only be cut where a transaction ends.
        if self.rows >= _FOLD_ROWS and block.ends_complete:
            self._fold()

    def _learn(self, table: TableId, block: Block) -> None:
        """Take note of what schema events say of the numbers of columns."""
        for event in block.system:
            if event.kind is SystemKind.SCHEMA and event.table == table:
                self.known |= told_numbers(event.payload)

    def _later_names(self, old: TableSchema) -> Mapping[str, str] | None:
        was = self.known.get(old.schema_id, NO_NUMBERS)
        return successors(old.names, self.schema.names, was, self.schema.numbers)

    def _append(self, found: list[pa.RecordBatch]) -> None:
        """Take the rows of one block; versions of the table may take turns in it."""
        if len(found) > 1:
            rows = pa.Table.from_batches(found)
            order = [("_scn", "ascending"), ("_ord", "ascending")]
            found = rows.sort_by(order).combine_chunks().to_batches()
        self.batches += [batch for batch in found if batch.num_rows]
        self.rows += sum(batch.num_rows for batch in found)

    def _fold(self) -> None:
        effects = fold(self.schema, self.batches, self.truncates)
        self.effects = (
            effects if self.effects is None else combine(self.schema, self.effects, effects)
        )
        self.batches, self.truncates, self.rows = [], [], 0

    def folded(self) -> pa.Table:
        if self.batches or self.truncates:
            self._fold()
        return folded_schema(self.schema).empty_table() if self.effects is None else self.effects


def _among(scn: npt.NDArray[np.int64], seen: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which SCNs are among the rising ones of ``seen``, without sorting those again for each block."""
    if not len(seen):
        return np.zeros(len(scn), np.bool_)
    place = np.minimum(np.searchsorted(seen, scn), len(seen) - 1)
    found: npt.NDArray[np.bool_] = seen[place] == scn
    return found
