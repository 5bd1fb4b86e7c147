"""The `Source` port over a `ScriptedDatabase`.

``weather`` is called at every point where a real server could do something of its own: before and after
each statement of ours and before each read of the log. That is where histories interleave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from headrace.errors import SourceError, SourceUnavailable
from headrace.model.block import (
    ORIGIN_LOG,
    Block,
    Body,
    SystemEvent,
    SystemKind,
    transaction_index,
)
from headrace.model.change import change_schema, pack_missing, table_arrow_schema
from headrace.model.mark import Mark
from headrace.model.schema import TableId, TableSchema
from headrace.model.snapshot import Visibility
from headrace.sources.base import (
    Bound,
    CanonicalKeys,
    Chunk,
    Finding,
    LogItem,
    ReceivedMark,
    SchemaStore,
    TableDump,
)
from headrace.sources.scripted.database import MISSING, Cells, Change, ScriptedDatabase, Transaction

__all__ = ["ScriptedSource"]

US_PER_SCN = 1_000_000
"""Commit times are made up: one second of SCN distance."""


class ScriptedSource:
    """One scripted database as a source.

    Args:
        database: whose log and rows are read.
        weather: called wherever something else may happen.
        most: transactions that one read of the log returns at most.
    """

    name = "scripted"

    def __init__(
        self, database: ScriptedDatabase, weather: Callable[[], None] = lambda: None, most: int = 5
    ) -> None:
        self.database = database
        self.weather = weather
        self.most = most
        self.statements = 0
        self.cut = False

    def preflight(self) -> list[Finding]:
        """Return nothing: the script is as it should be."""
        return []

    def tables(self) -> list[TableSchema]:
        """Return the tables in the script's order."""
        return list(self.database.schemas.values())

    def prepare(self, *, fresh: bool = False) -> None:
        """Do nothing: the log is always there."""

    def drop(self) -> None:
        """Do nothing."""

    def incarnation(self) -> str:
        """Return a constant."""
        return "scripted"

    def departs(self, incarnation: str, scn: int) -> str:
        """Return nothing: a script has one life."""
        del incarnation, scn
        return ""

    def open(self, schemas: SchemaStore) -> _ScriptedLog:
        """Read the log from what was last acknowledged."""
        self.cut = False
        return _ScriptedLog(self, schemas)

    def acknowledged_scn(self) -> int:
        """Return what was last acknowledged."""
        return self.database.acknowledged

    def chunks(self) -> _ScriptedChunks:
        """Open a chunk reader."""
        return _ScriptedChunks(self)

    def watermarks(self) -> _ScriptedMarks:
        """Open a watermark writer."""
        return _ScriptedMarks(self)


class _ScriptedLog:
    def __init__(self, source: ScriptedSource, schemas: SchemaStore) -> None:
        self._source = source
        self._schemas = schemas
        self._at = source.database.acknowledged

    def poll(self, timeout_s: float) -> LogItem | None:
        del timeout_s  # Nothing comes by waiting here.
        if self._source.cut:
            raise SourceUnavailable("scripted: the connection was cut.", next_step="open again.")
        self._source.weather()
        taken: list[Transaction] = []
        for transaction in self._source.database.log:
            if transaction.scn > self._at and len(taken) < self._source.most:
                taken.append(transaction)
                if transaction.mark:
                    break
        if not taken:
            return None
        self._at = taken[-1].scn
        last = taken[-1]
        mark = ReceivedMark(last.mark, last.scn, last.scn * US_PER_SCN) if last.mark else None
        more = self._source.database.log[-1].scn > self._at
        return LogItem(self._block(taken), str(self._at), mark, more)

    def acknowledge(self, position: str) -> None:
        self._source.database.acknowledged = int(position)

    def keep_alive(self) -> None:
        """Nobody minds here."""

    def close(self) -> None:
        self._at = -1

    def _block(self, taken: Sequence[Transaction]) -> Block:
        rows: dict[TableId, list[tuple[int, int, Change]]] = {}
        events: list[SystemEvent] = []
        for transaction in taken:
            for order, change in enumerate(transaction.changes):
                if change.op == "T":
                    events.append(
                        SystemEvent(transaction.scn, order, SystemKind.TRUNCATE, change.table)
                    )
                else:
                    rows.setdefault(change.table, []).append((transaction.scn, order, change))
        bodies = []
        for table, changes in rows.items():
            schema = self._source.database.schemas[table]
            bodies.append(Body(self._schemas.put(schema), table, _batch(schema, changes)))
        index = transaction_index(
            (t.scn, t.scn * US_PER_SCN, t.xid, len(t.changes), ORIGIN_LOG, 1)
            for t in taken
            if not t.mark
        )
        # A mark's own SCN belongs to the window that it may close.
        covered = taken[-1].scn - bool(taken[-1].mark)
        return Block(index, tuple(bodies), tuple(events), covered)


def _batch(schema: TableSchema, changes: Sequence[tuple[int, int, Change]]) -> pa.RecordBatch:
    width = len(schema.columns)
    masks = [
        pack_missing((i for i, cell in enumerate(c.cells) if cell is MISSING), width)
        for *_, c in changes
    ]
    columns = [
        pa.array([None if c.cells[i] is MISSING else c.cells[i] for *_, c in changes], column.type)
        for i, column in enumerate(schema.columns)
    ]
    return pa.record_batch(
        [
            pa.array([scn for scn, *_ in changes], pa.int64()),
            pa.array([order for _, order, _ in changes], pa.int32()),
            pa.array([c.op for *_, c in changes], pa.string()),
            pa.array(masks, pa.binary()),
            *columns,
        ],
        schema=change_schema(schema),
    )


class _ScriptedChunks:
    def __init__(self, source: ScriptedSource) -> None:
        self._source = source

    def describe(self, table: TableId) -> TableSchema:
        return self._source.database.schemas[table]

    def estimate_rows(self, table: TableId) -> int:
        return len(self._source.database.visible(table))

    def upper_bound(self, table: TableId, predicate: str | None = None) -> Bound:
        rows = self._where(table, self._source.database.visible(table), predicate)
        return Bound((str(rows[-1][0]),) if rows else None)

    def _where(self, table: TableId, rows: list[Cells], predicate: str | None) -> list[Cells]:
        """Return the rows for which a condition holds: ``column = 'text'`` is the only one known here."""
        if predicate is None:
            return rows
        name, _, value = predicate.partition(" = ")
        schema = self.describe(table)
        if name not in schema.names:
            raise SourceError(
                f"{table} cannot be read: column {name} does not exist.",
                next_step="correct the condition.",
            )
        place = schema.names.index(name)
        return [row for row in rows if str(row[place]) == value.strip("'")]

    def read(
        self,
        table: TableId,
        after: Sequence[str] | None,
        until: Sequence[str],
        limit: int,
        predicate: str | None = None,
    ) -> Chunk:
        low = int(after[0]) if after else None
        rows, saw = self._select(table)
        rows = self._where(table, rows, predicate)
        rows = [r for r in rows if (low is None or r[0] > low) and r[0] <= int(until[0])][:limit]
        last = (str(rows[-1][0]),) if rows else None
        return Chunk(self.describe(table), self._rows(table, rows), saw, last)

    def read_keys(self, table: TableId, keys: Sequence[Sequence[str]]) -> Chunk:
        wanted = {int(key[0]) for key in keys}
        rows, saw = self._select(table)
        rows = [row for row in rows if row[0] in wanted]
        return Chunk(self.describe(table), self._rows(table, rows), saw, None)

    def canonical_keys(self, table: TableId, keys: Sequence[Sequence[str]]) -> CanonicalKeys:
        del table  # Every key here is one number.
        return CanonicalKeys(tuple(dict.fromkeys((str(int(key[0])),) for key in keys)))

    def key_rows(self, schema: TableSchema, keys: Sequence[Sequence[str]]) -> pa.RecordBatch:
        blank = (None,) * (len(schema.columns) - 1)
        return self._rows(schema.table, [(int(key[0]), *blank) for key in keys])

    def read_table(self, table: TableId) -> TableDump:
        rows, saw = self._select(table)
        batches = [self._rows(table, rows[i : i + 3]) for i in range(0, len(rows), 3)]
        return TableDump(self.describe(table), saw, iter(batches))

    def snapshot(self) -> Visibility:
        return self._source.database.snapshot()

    def render_keys(self, schema: TableSchema, rows: pa.RecordBatch) -> list[tuple[str, ...]]:
        columns = [rows.column(name).to_pylist() for name in schema.key]
        return [tuple(str(cell) for cell in key) for key in zip(*columns, strict=True)]

    def close(self) -> None:
        """Nothing is held."""

    def _select(self, table: TableId) -> tuple[list[Cells], Visibility]:
        self._source.statements += 1
        self._source.weather()
        rows, saw = self._source.database.visible(table), self._source.database.snapshot()
        self._source.weather()
        return rows, saw

    def _rows(self, table: TableId, rows: Iterable[Cells]) -> pa.RecordBatch:
        schema = self.describe(table)
        columns = list(zip(*rows, strict=True)) or [()] * len(schema.columns)
        arrays = [
            pa.array(c, column.type) for c, column in zip(columns, schema.columns, strict=True)
        ]
        return pa.record_batch(arrays, schema=table_arrow_schema(schema))


class _ScriptedMarks:
    def __init__(self, source: ScriptedSource) -> None:
        self._source = source

    def write(self, mark: Mark) -> None:
        self._source.statements += 1
        self._source.weather()
        self._source.database.write_mark(mark)
        self._source.weather()

    def close(self) -> None:
        """Nothing is held."""
