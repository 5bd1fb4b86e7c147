"""Histories that people can read: ``-U(1,a) +U(2,a) | =U(2,b,?)``.

One term per change row: operation code and cells, the key columns first; ``?`` is a cell the source did
not send, ``.`` is null. ``|`` ends a transaction, ``T`` is a truncate. Every cell is text except an int64
first column.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.model.change import change_schema, pack_missing
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema

__all__ = ["History", "change_batch", "parse_history", "table_of"]

TERM = re.compile(r"(?P<op>[+=-][IUDR])\((?P<cells>[^)]*)\)|(?P<truncate>T)|(?P<end>\|)")
MISSING = "?"
"""How a cell that was not sent is written."""

Cell = int | float | str | None
Row = tuple[int, int, str, tuple[Cell, ...]]


def table_of(
    columns: int, key: int = 1, check: KeyCheck = KeyCheck.IMMEDIATE, name: str = "t"
) -> TableSchema:
    """Return a table ``k, c1, c2, …`` whose first ``key`` columns are the key; ``k`` is int64, the rest text."""
    names = ["k", *(f"c{i}" for i in range(1, columns))]
    types = [pa.int64(), *(pa.string() for _ in names[1:])]
    return TableSchema(
        TableId("public", name),
        tuple(Column(n, t, str(t)) for n, t in zip(names, types, strict=True)),
        tuple(names[:key]) if check is not KeyCheck.NONE else (),
        check,
    )


@dataclass(frozen=True, slots=True)
class History:
    """Parsed changes: rows as ``(scn, ord, op, cells)`` and the positions of truncates."""

    rows: list[Row]
    truncates: list[tuple[int, int]]

    def batch(self, schema: TableSchema, first: int = 0, last: int | None = None) -> pa.RecordBatch:
        """Return rows ``first`` to ``last`` as a change batch of ``schema``."""
        return change_batch(schema, self.rows[first:last])


def parse_history(text: str, scn: int = 1) -> History:
    """Read the notation; the first transaction has the given SCN, each later one the next."""
    rows: list[Row] = []
    truncates: list[tuple[int, int]] = []
    order = 0
    for match in TERM.finditer(text):
        if match["end"]:
            scn, order = scn + 1, 0
            continue
        if match["truncate"]:
            truncates.append((scn, order))
        else:
            cells = [cell.strip() for cell in match["cells"].split(",")]
            values: list[Cell] = [None if cell == "." else cell for cell in cells]
            if values[0] not in (None, MISSING):
                values[0] = int(cells[0])
            rows.append((scn, order, match["op"], tuple(values)))
        order += 1
    return History(rows, truncates)


def change_batch(schema: TableSchema, rows: Sequence[Row]) -> pa.RecordBatch:
    """Return change rows as a batch; short rows are padded with cells that were not sent."""
    width = len(schema.columns)
    padded = [(*cells, *([MISSING] * (width - len(cells)))) for *_, cells in rows]
    missing = [
        pack_missing((i for i, cell in enumerate(cells) if cell == MISSING), width)
        for cells in padded
    ]
    columns = [
        pa.array([None if row[i] == MISSING else row[i] for row in padded], column.type)
        for i, column in enumerate(schema.columns)
    ]
    return pa.record_batch(
        [
            pa.array([row[0] for row in rows], pa.int64()),
            pa.array([row[1] for row in rows], pa.int32()),
            pa.array([row[2] for row in rows], pa.string()),
            pa.array(missing, pa.binary()),
            *columns,
        ],
        schema=change_schema(schema),
    )
