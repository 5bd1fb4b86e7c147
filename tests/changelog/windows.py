"""Small windows for tests: blocks of readable transactions, and what a reader of them must see."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.changelog import ChangeLogWriter
from headrace.model.block import (
    Block,
    Body,
    SystemEvent,
    SystemKind,
    transaction_index,
)
from headrace.model.schema import TableSchema
from headrace.testing.notation import change_batch, table_of
from headrace.wire import encode_block

TABLE = table_of(3)
OTHER = table_of(2, name="other")
SEGMENT_HEADER = 128

Seen = tuple[int, int, str]


def window(
    scn: int,
    rows: int = 2,
    *,
    first: int = 0,
    last: bool = True,
    tables: tuple[TableSchema, ...] = (TABLE,),
    text: str = "x",
    truncate: bool = False,
) -> Block:
    """Return one transaction, or a piece of it, with ``rows`` rows per table from ordinal ``first`` on."""
    bodies = tuple(
        Body(
            table.schema_id,
            table.table,
            change_batch(
                table,
                [
                    (scn, first + place * rows + i, "+I", (i, *[text] * (len(table.columns) - 1)))
                    for i in range(rows)
                ],
            ),
        )
        for place, table in enumerate(tables)
    )
    events = (SystemEvent(scn, 9999, SystemKind.TRUNCATE, TABLE.table),) if truncate else ()
    changes = rows * len(tables) + len(events)
    index = transaction_index([(scn, commit_us(scn), scn + 5000, changes, 0, int(last))])
    return Block(index, bodies if rows else (), events, scn if last else scn - 1)


def joined(blocks: Iterable[Block]) -> Block:
    """Return transactions over `TABLE` in one block; only the last may be a piece."""
    parts = list(blocks)
    entries = [entry for part in parts for entry in part.index.tolist()]
    rows = [
        (row["_scn"], row["_ord"], "+I", (row["k"], row["c1"], row["c2"]))
        for part in parts
        for row in part.bodies[0].batch.to_pylist()
    ]
    body = Body(TABLE.schema_id, TABLE.table, change_batch(TABLE, rows))
    return Block(
        transaction_index([entry[:6] for entry in entries]), (body,), (), parts[-1].covered_scn
    )


def coverage(scn: int) -> Block:
    """Return a block that only says that the source was quiet up to ``scn``."""
    return Block(transaction_index([]), (), (), scn)


def commit_us(scn: int) -> int:
    """Return the commit time of a test transaction."""
    return 1_000_000 + scn


def seen(blocks: Iterable[Block]) -> list[Seen]:
    """Return ``(scn, ord, table)`` of every row and system event, in order."""
    out = []
    for block in blocks:
        for body in block.bodies:
            scns = body.batch.column("_scn").to_pylist()
            ords = body.batch.column("_ord").to_pylist()
            out += [(scn, ord_, str(body.table)) for scn, ord_ in zip(scns, ords, strict=True)]
        out += [(event.scn, event.ord, "system") for event in block.system]
    return sorted(out)


def scns(blocks: Iterable[Block]) -> list[int]:
    """Return the SCN of every index entry."""
    return [int(scn) for block in blocks for scn in block.index["scn"]]


def size(block: Block) -> int:
    """Return the bytes of a block."""
    return len(encode_block(block))


def synced(writer: ChangeLogWriter, *blocks: Block) -> None:
    """Append blocks and make them readable."""
    for block in blocks:
        writer.append(block)
    writer.sync()
