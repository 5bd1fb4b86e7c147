"""The fixed blocks behind the golden files; ``python -m tests.wire.examples`` writes the files anew.

Rewriting them is a change of the format: raise its version, keep the old files and a decoder for them.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from headrace.model.block import (
    ORIGIN_LOG,
    ORIGIN_SELECT,
    Block,
    Body,
    SystemEvent,
    SystemKind,
    transaction_index,
)
from headrace.model.change import change_schema, pack_missing
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema, parse_type
from headrace.testing.notation import change_batch, parse_history, table_of
from headrace.wire import encode_block

GOLDEN = Path(__file__).parent / "golden"
COMMIT_US = 1_700_000_000_000_000

ORDERS = table_of(3, name="orders")
NOTES = table_of(2, check=KeyCheck.NONE, name="notes.old")
TYPES = TableSchema(
    TableId("shop", "every type"),
    tuple(
        Column(name, parse_type(type_), source_type)
        for name, type_, source_type in (
            ("bool", "bool", "boolean"),
            ("small", "int16", "smallint"),
            ("int", "int32", "integer"),
            ("big", "int64", "bigint"),
            ("real", "float32", "real"),
            ("double", "float64", "double precision"),
            ("text", "string", "text"),
            ("bytes", "binary", "bytea"),
            ("day", "date", "date"),
            ("local", "timestamp", "timestamp without time zone"),
            ("instant", "timestamptz", "timestamp with time zone"),
            ("money", "decimal(38,10)", "numeric(38,10)"),
        )
    ),
    ("big",),
    KeyCheck.IMMEDIATE,
)


def orders() -> Block:
    """Three transactions over two tables, a truncate among them, one key change, one cell not sent."""
    rows = parse_history("+I(1,a,b) +I(2,c,.) | -U(1,a,b)+U(3,d,b) T | =U(2,e,?)", scn=100)
    notes = parse_history("+I(7,line)", scn=102)
    return Block(
        transaction_index(
            [
                (100, COMMIT_US, 7001, 2, ORIGIN_LOG, 1),
                (101, COMMIT_US + 1, 7003, 3, ORIGIN_LOG, 1),
                (102, COMMIT_US + 1, 7002, 2, ORIGIN_LOG, 1),
            ]
        ),
        (
            Body(ORDERS.schema_id, ORDERS.table, rows.batch(ORDERS)),
            Body(NOTES.schema_id, NOTES.table, notes.batch(NOTES)),
        ),
        (SystemEvent(101, 2, SystemKind.TRUNCATE, NOTES.table),),
        109,
    )


def every_type() -> Block:
    """One chunk window with a value and a null of every neutral type."""
    values = [
        True,
        -(2**15),
        2**31 - 1,
        -(2**63),
        1.5,
        0.1,
        "zażółć",
        b"\x00\xff",
        date(1, 1, 1),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC).replace(tzinfo=None),
        datetime(1970, 1, 1, tzinfo=UTC),
        Decimal("-1234567890123456789012345678.0123456789"),
    ]
    columns = [
        pa.array([value, None], c.type) for value, c in zip(values, TYPES.columns, strict=True)
    ]
    meta = [
        pa.array([200, 200], pa.int64()),
        pa.array([0, 1], pa.int32()),
        pa.array(["+R", "+R"], pa.string()),
        pa.array([None, pack_missing([11], 12)], pa.binary()),
    ]
    batch = pa.record_batch([*meta, *columns], schema=change_schema(TYPES))
    return Block(
        transaction_index([(200, COMMIT_US + 5, 0, 2, ORIGIN_SELECT, 1)]),
        (Body(TYPES.schema_id, TYPES.table, batch),),
        (),
        200,
    )


def open_piece() -> Block:
    """A piece of a transaction that goes on in the next block."""
    rows = [(300, i, "+I", (i, f"row {i}", None)) for i in range(5)]
    return Block(
        transaction_index([(300, COMMIT_US + 9, 7100, 5, ORIGIN_LOG, 0)]),
        (Body(ORDERS.schema_id, ORDERS.table, change_batch(ORDERS, rows)),),
        (),
        299,
    )


def system_only() -> Block:
    """The end of a dump: a transaction of one system event."""
    event = SystemEvent(
        400, 0, SystemKind.DUMP_COMPLETE, ORDERS.table, {"request_id": 1, "schema_id": 2}
    )
    return Block(transaction_index([(400, COMMIT_US, 0, 1, ORIGIN_SELECT, 1)]), (), (event,), 400)


def coverage() -> Block:
    """No transaction: the source was quiet up to here."""
    return Block(transaction_index([]), (), (), 500)


EXAMPLES = {
    "orders": orders,
    "every_type": every_type,
    "open_piece": open_piece,
    "system_only": system_only,
    "coverage": coverage,
}


def golden(name: str) -> bytes:
    """Return the golden bytes of an example."""
    return (GOLDEN / f"{name}.bin").read_bytes()


if __name__ == "__main__":
    for name, make in EXAMPLES.items():
        (GOLDEN / f"{name}.bin").write_bytes(encode_block(make()))
