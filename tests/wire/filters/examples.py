"""Random tables, rows and blocks for filters, and what a row is when Python looks at it."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.model.block import ORIGIN_LOG, Block, Body, transaction_index
from headrace.model.change import change_schema, missing_matrix, pack_missing
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema, parse_type

__all__ = ["UNSENT", "WIDE", "block_of", "random_cell", "rows_in", "table", "wide_block"]

UNSENT = "unsent"
"""Stands for a cell that the source did not send; no random text is like it."""

Row = tuple[int, int, str, tuple[Any, ...]]
"""``(scn, ord, op, cells)``"""

_VALUES: dict[str, Sequence[Any]] = {
    "bool": (True, False),
    "int16": (-3, 0, 2, 7),
    "int32": (-(2**31), -1, 0, 5, 2**31 - 1),
    "int64": (-(2**63), -7, 0, 3, 12, 2**53 + 1, 2**63 - 1),
    "float32": (-1.5, 0.0, 0.1, math.nan),
    "float64": (-math.inf, -0.0, 0.0, 0.1, 2.5, 1e300, math.nan),
    "string": ("", "a", "ab", "a%b", "Ü", "paid", "a\nb", "o'k"),
    "binary": (b"", b"\x00\xff"),
    "date": (date(2024, 2, 29), date(1, 1, 1)),
    "timestamp": tuple(map(datetime.fromisoformat, ("2024-01-01T12:00", "1999-12-31"))),
    "timestamptz": (datetime(2024, 1, 1, 12, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)),
    "decimal(10,2)": (Decimal("12.50"), Decimal("-0.01"), Decimal("99999999.99")),
}


def table(
    columns: dict[str, str],
    key: Sequence[str],
    check: KeyCheck = KeyCheck.IMMEDIATE,
    name: str = "t",
) -> TableSchema:
    """Return a table of columns by name with their neutral types."""
    return TableSchema(
        TableId("public", name),
        tuple(Column(c, parse_type(type_), type_) for c, type_ in columns.items()),
        tuple(key),
        check,
    )


WIDE = table(
    {
        "id": "int64",
        "flag": "bool",
        "small": "int16",
        "mid": "int32",
        "big": "int64",
        "real": "float32",
        "double": "float64",
        "name": "string",
        "note": "string",
        "raw": "binary",
        "day": "date",
        "local": "timestamp",
        "instant": "timestamptz",
        "price": "decimal(10,2)",
    },
    ["id"],
)
"""A column of every type."""


def random_cell(rng: random.Random, column: Column) -> Any:
    """Return a value of a column's type; null now and then."""
    return None if rng.random() < 0.2 else rng.choice(_VALUES[column.source_type])


def wide_block(rng: random.Random, count: int) -> Block:
    """Return inserts, reads, deletes and updates of random rows of `WIDE`, with columns left out."""
    rows: list[Row] = []
    for scn in range(1, count + 1):
        op = rng.choice(("+I", "+R", "-D", "=U", "-U"))
        key = rng.randrange(-20, 20)
        rows.append((scn, 0, op, _cells(rng, key, whole=op in ("+I", "+R"))))
        if op == "-U":
            after = key if rng.random() < 0.7 else rng.randrange(-20, 20)
            rows.append((scn, 1, "+U", _cells(rng, after, whole=False)))
    return block_of(WIDE, rows)


def _cells(rng: random.Random, key: int, *, whole: bool) -> tuple[Any, ...]:
    share = 0 if whole else rng.choice((0, 0.3, 1))
    others = (UNSENT if rng.random() < share else random_cell(rng, c) for c in WIDE.columns[1:])
    return (key, *others)


def block_of(schema: TableSchema, rows: Sequence[Row]) -> Block:
    """Return the block that carries rows of one table."""
    width = len(schema.columns)
    columns = [
        pa.array([None if row[3][place] is UNSENT else row[3][place] for row in rows], column.type)
        for place, column in enumerate(schema.columns)
    ]
    masks = [pack_missing((i for i, c in enumerate(r[3]) if c is UNSENT), width) for r in rows]
    batch = pa.record_batch(
        [
            pa.array([row[0] for row in rows], pa.int64()),
            pa.array([row[1] for row in rows], pa.int32()),
            pa.array([row[2] for row in rows], pa.string()),
            pa.array(masks, pa.binary()),
            *columns,
        ],
        schema=change_schema(schema),
    )
    scns = [row[0] for row in rows]
    index = [(scn, 0, 0, scns.count(scn), ORIGIN_LOG, 1) for scn in sorted(set(scns))]
    body = Body(schema.schema_id, schema.table, batch)
    return Block(transaction_index(index), (body,) if rows else (), (), max(scns, default=0))


def rows_in(block: Block, schema: TableSchema) -> list[Row]:
    """Return the rows of the one table of a block."""
    rows: list[Row] = []
    for body in block.bodies:
        batch = body.batch
        assert batch.schema == change_schema(schema)
        unsent = missing_matrix(batch.column("_missing"), len(schema.columns))
        for place, cells in enumerate(
            zip(*(batch.column(n).to_pylist() for n in schema.names), strict=True)
        ):
            shown = tuple(
                UNSENT if hole else cell for cell, hole in zip(cells, unsent[place], strict=True)
            )
            holes = [cell for cell, hole in zip(cells, unsent[place], strict=True) if hole]
            assert holes == [None] * len(holes), "a cell that was not sent holds a value"
            meta = (batch.column(name)[place].as_py() for name in ("_scn", "_ord", "_op"))
            scn, order, op = meta
            rows.append((scn, order, op, shown))
    return rows
