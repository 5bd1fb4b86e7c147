"""A toy source: a text file to which whole transactions are appended, a line of JSON each.

Nothing but the port of sources is known here, and nothing anywhere knows of this: what a new kind of source takes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Event, Lock
from typing import Any

import pyarrow as pa

from headrace.model.block import ORIGIN_LOG, Block, Body, transaction_index
from headrace.model.change import change_schema, table_arrow_schema
from headrace.model.mark import Mark
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.model.snapshot import TransactionSnapshot
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

__all__ = ["ITEMS", "JournalSource"]

ITEMS = TableSchema(
    TableId("public", "t"),
    (Column("id", pa.int32(), "number"), Column("v", pa.string(), "text")),
    ("id",),
    KeyCheck.IMMEDIATE,
)
STEP = 10
"""Between the SCNs of two lines: a chunk's window has one of its own in between."""


class JournalSource:
    """One file as a source, with one table. A change is ``[op, id, v]``."""

    name = "journal"

    def __init__(self, file: Path) -> None:
        self._file, self._place = file, file.with_suffix(".read")
        self._file.touch()
        self._lines: list[dict[str, Any]] = [
            json.loads(line) for line in self._file.read_text().splitlines()
        ]
        self._lock = Lock()

    def write(self, *changes: tuple[str, int, str | None], mark: str = "") -> None:
        """Append a transaction."""
        line: dict[str, Any] = {"mark": mark} if mark else {"changes": changes}
        with self._lock, self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")
            self._lines.append(line)

    def lines(self) -> list[dict[str, Any]]:
        """Return everything that was ever written."""
        with self._lock:
            return self._lines[:]

    def rows(self, upto: int | None = None) -> dict[int, str | None]:
        """Return the rows that there are, or were behind so many lines."""
        held: dict[int, str | None] = {}
        for line in self.lines()[:upto]:
            for op, key, cell in line.get("changes", ()):
                held.pop(key, None)
                if op != "-D":
                    held[key] = cell
        return held

    # -- the port ---------------------------------------------------------------------------------

    def preflight(self) -> list[Finding]:
        return []

    def tables(self) -> list[TableSchema]:
        return [ITEMS]

    def prepare(self, *, fresh: bool = False) -> None:
        """The file is all there is."""

    def drop(self) -> None:
        """Nothing was made."""

    def incarnation(self) -> str:
        return "journal"

    def departs(self, incarnation: str, scn: int) -> str:
        return ""

    def open(self, schemas: SchemaStore) -> _Log:
        return _Log(self, schemas)

    def acknowledged_scn(self) -> int:
        return int(self._place.read_text()) if self._place.exists() else 0

    def acknowledge(self, scn: int) -> None:
        self._place.write_text(str(scn))

    def chunks(self) -> _Chunks:
        return _Chunks(self)

    def watermarks(self) -> _Marks:
        return _Marks(self)


class _Log:
    def __init__(self, source: JournalSource, schemas: SchemaStore) -> None:
        self._source, self._schemas = source, schemas
        self._at = source.acknowledged_scn() // STEP

    def poll(self, timeout_s: float) -> LogItem | None:
        lines = self._source.lines()
        if self._at == len(lines):
            Event().wait(min(timeout_s, 0.01))
            return None
        line, self._at = lines[self._at], self._at + 1
        scn = self._at * STEP
        if "mark" in line:
            received = ReceivedMark(Mark.parse(line["mark"]), scn, scn)
            return LogItem(Block(transaction_index([]), (), (), scn - 1), str(scn), received)
        ops, keys, cells = zip(*line["changes"], strict=True)
        count = len(ops)
        batch = pa.record_batch(
            [
                pa.array([scn] * count, pa.int64()),
                pa.array(range(count), pa.int32()),
                pa.array(ops),
                pa.nulls(count, pa.binary()),
                pa.array(keys, pa.int32()),
                pa.array(cells, pa.string()),
            ],
            schema=change_schema(ITEMS),
        )
        index = transaction_index([(scn, scn, self._at, count, ORIGIN_LOG, 1)])
        body = Body(self._schemas.put(ITEMS), ITEMS.table, batch)
        return LogItem(Block(index, (body,), (), scn), str(scn), more=self._at < len(lines))

    def acknowledge(self, position: str) -> None:
        self._source.acknowledge(int(position))

    def keep_alive(self) -> None:
        """Nobody minds."""

    def close(self) -> None:
        """Nothing is held."""


class _Chunks:
    def __init__(self, source: JournalSource) -> None:
        self._source = source

    def describe(self, table: TableId) -> TableSchema:
        return ITEMS

    def estimate_rows(self, table: TableId) -> int:
        return len(self._source.rows())

    def upper_bound(self, table: TableId, predicate: str | None = None) -> Bound:
        rows = self._source.rows()
        return Bound((str(max(rows)),) if rows else None)

    def read(
        self,
        table: TableId,
        after: Sequence[str] | None,
        until: Sequence[str],
        limit: int,
        predicate: str | None = None,
    ) -> Chunk:
        low = int(after[0]) if after else -1
        saw, rows = self._seen()
        found = [item for item in sorted(rows.items()) if low < item[0] <= int(until[0])][:limit]
        return Chunk(ITEMS, _batch(found), saw, (str(found[-1][0]),) if found else None)

    def read_keys(self, table: TableId, keys: Sequence[Sequence[str]]) -> Chunk:
        saw, rows = self._seen()
        wanted = [int(key[0]) for key in keys]
        return Chunk(ITEMS, _batch([(key, rows[key]) for key in wanted if key in rows]), saw, None)

    def canonical_keys(self, table: TableId, keys: Sequence[Sequence[str]]) -> CanonicalKeys:
        return CanonicalKeys(tuple(dict.fromkeys((str(int(key[0])),) for key in keys)))

    def key_rows(self, schema: TableSchema, keys: Sequence[Sequence[str]]) -> pa.RecordBatch:
        return _batch([(int(key[0]), None) for key in keys])

    def read_table(self, table: TableId) -> TableDump:
        saw, rows = self._seen()
        return TableDump(ITEMS, saw, iter([_batch(rows.items())]))

    def snapshot(self) -> TransactionSnapshot:
        return self._seen()[0]

    def render_keys(self, schema: TableSchema, rows: pa.RecordBatch) -> list[tuple[str, ...]]:
        return [(str(key),) for key in rows.column("id").to_pylist()]

    def close(self) -> None:
        """Nothing is held."""

    def _seen(self) -> tuple[TransactionSnapshot, dict[int, str | None]]:
        count = len(self._source.lines())
        return TransactionSnapshot(count + 1, count + 1, frozenset()), self._source.rows(count)


class _Marks:
    def __init__(self, source: JournalSource) -> None:
        self._source = source

    def write(self, mark: Mark) -> None:
        self._source.write(mark=mark.render())

    def close(self) -> None:
        """Nothing is held."""


def _batch(rows: Iterable[tuple[int, str | None]]) -> pa.RecordBatch:
    found = list(rows)
    cells = [pa.array([key for key, _ in found], pa.int32())]
    cells.append(pa.array([cell for _, cell in found], pa.string()))
    return pa.record_batch(cells, schema=table_arrow_schema(ITEMS))
