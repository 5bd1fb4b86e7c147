"""Blocks that windows emit: chunk rows at their high mark, whole tables without a key, completions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.fold import ALL_DEAD
from headrace.model.block import (
    ORIGIN_KEYS,
    ORIGIN_SELECT,
    Block,
    Body,
    SystemEvent,
    SystemKind,
    transaction_index,
)
from headrace.model.change import DELETE, INSERT, READ, change_schema, pack_missing
from headrace.model.rowkey import encode_rows
from headrace.model.schema import KeyCheck, TableId, TableSchema
from headrace.sources.base import ReceivedMark

__all__ = ["chunk_block", "complete_block", "gap_block", "multiset_rows", "table_blocks"]

_NOTHING: Mapping[str, Any] = {}


def _change_rows(
    schema: TableSchema, rows: pa.RecordBatch, scn: int, first_ord: int, op: str
) -> pa.RecordBatch:
    """Return the table's rows with meta columns, ords counted from ``first_ord``."""
    count = rows.num_rows
    return pa.record_batch(
        [
            pa.array(np.full(count, scn, np.int64)),
            pa.array(np.arange(first_ord, first_ord + count, dtype=np.int32)),
            pa.repeat(op, count),
            pa.nulls(count, pa.binary()),
            *rows.columns,
        ],
        schema=change_schema(schema),
    )


def chunk_block(
    mark: ReceivedMark,
    schema: TableSchema,
    rows: pa.RecordBatch,
    gone: pa.RecordBatch | None = None,
    *,
    announce: bool,
    by_key: bool = False,
    before: Mapping[str, Any] = _NOTHING,
) -> Block:
    """Return the window of a chunk: its surviving rows as ``+R`` at the high mark's own SCN.

    Args:
        mark: the received high mark.
        schema: the chunk's table version.
        rows: the table's own columns.
        gone: likewise, of which only the keys mean anything: these have no row, and leave as ``-D``.
        announce: put a schema event in front, since the log has not shown this version yet.
        by_key: whether the rows were looked for by their keys.
        before: what that event says of the version before.

    Source: DBLog, Algorithm 1 step 7.
    """
    events = [_schema_event(mark.scn, schema, before)] if announce else []
    changes = _change_rows(schema, rows, mark.scn, len(events), READ)
    if gone is not None and gone.num_rows:
        deletes = _deletes(schema, gone, mark.scn, len(events) + rows.num_rows)
        both = pa.Table.from_batches([changes, deletes]).combine_chunks()
        (changes,) = both.to_batches()
    body = Body(schema.schema_id, schema.table, changes)
    origin = ORIGIN_KEYS if by_key else ORIGIN_SELECT
    count = changes.num_rows + len(events)
    index = transaction_index([(mark.scn, mark.commit_us, 0, count, origin, 1)])
    return Block(index, (body,) if changes.num_rows else (), tuple(events), mark.scn)


def _deletes(schema: TableSchema, gone: pa.RecordBatch, scn: int, first_ord: int) -> pa.RecordBatch:
    """Return key-only deletes. A key that is checked late needs whole images: there the nulls are the image."""
    changes = _change_rows(schema, gone, scn, first_ord, DELETE)
    if schema.key_check is not KeyCheck.IMMEDIATE:
        return changes
    width = len(schema.columns)
    mask = pack_missing((i for i in range(width) if i not in schema.key_indexes), width)
    masks = pa.array([mask] * gone.num_rows, pa.binary())
    return changes.set_column(changes.schema.get_field_index("_missing"), "_missing", masks)


def _schema_event(scn: int, schema: TableSchema, before: Mapping[str, Any]) -> SystemEvent:
    payload: dict[str, Any] = {"schema_id": schema.schema_id}
    if schema.numbers:
        # Of columns without numbers nobody can say which became which.
        payload |= {"numbers": dict(schema.numbers), **before}
    return SystemEvent(scn, 0, SystemKind.SCHEMA, schema.table, payload)


def gap_block(
    scn: int, commit_us: int, tables: Sequence[TableId], kept: Collection[TableId] = ()
) -> Block:
    """Return a window that says of tables that changes are missing before it; those not kept are emptied."""
    events: list[SystemEvent] = []
    for table in tables:
        if table not in kept:
            events.append(SystemEvent(scn, len(events), SystemKind.TRUNCATE, table))
        # Behind the truncate: that the table is empty now is not what the source says.
        events.append(SystemEvent(scn, len(events), SystemKind.GAP, table))
    entry = (scn, commit_us, 0, len(events), ORIGIN_SELECT, 1)
    return Block(transaction_index([entry]), (), tuple(events), scn)


def complete_block(
    mark: ReceivedMark, schema: TableSchema, request_id: str, first_scn: int
) -> Block:
    """Return the system row that ends a table's dump, at the end mark's own SCN.

    Args:
        mark: the end mark.
        schema: the table's version.
        request_id: what asked for the dump.
        first_scn: the dump's first rows are here; 0 when it did not read the whole table.
    """
    payload = {"request_id": request_id, "schema_id": schema.schema_id, "first_scn": first_scn}
    event = SystemEvent(mark.scn, 0, SystemKind.DUMP_COMPLETE, schema.table, payload)
    index = transaction_index([(mark.scn, mark.commit_us, 0, 1, ORIGIN_SELECT, 1)])
    return Block(index, (), (event,), mark.scn)


def multiset_rows(
    schema: TableSchema, snapshot: Iterable[pa.RecordBatch], unseen: pa.Table
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a keyless table at the high mark: the snapshot's, plus the net of what it did not see.

    Args:
        schema: the table's version.
        snapshot: rows under one snapshot.
        unseen: folded form of the streamed transactions that the snapshot did not see.
    """
    effects = unseen["_effect"].to_pylist()
    wiped = ALL_DEAD in effects
    counts = unseen["_count"].to_pylist()
    removed: Counter[bytes] = Counter()
    for key, count in zip(
        encode_rows([unseen[name] for name in schema.names]).to_pylist(), counts, strict=True
    ):
        if count is not None and count < 0:
            removed[key] -= count
    for batch in () if wiped else snapshot:
        yield _without(schema, batch, removed) if removed else batch
    added = [
        (place, count) for place, count in enumerate(counts) if count is not None and count > 0
    ]
    if added:
        places = np.repeat([p for p, _ in added], [c for _, c in added])
        yield from unseen.select(schema.names).take(pa.array(places)).combine_chunks().to_batches()


def _without(schema: TableSchema, batch: pa.RecordBatch, removed: Counter[bytes]) -> pa.RecordBatch:
    keep = np.ones(batch.num_rows, bool)
    keys = encode_rows([batch.column(name) for name in schema.names]).to_pylist()
    for place, key in enumerate(keys):
        if removed.get(key, 0) > 0:
            removed[key] -= 1
            keep[place] = False
    return batch.filter(pa.array(keep))


def table_blocks(
    mark: ReceivedMark,
    schema: TableSchema,
    batches: Iterable[pa.RecordBatch],
    piece_rows: int,
    before: Mapping[str, Any] = _NOTHING,
) -> Iterator[Block]:
    """Yield one window in pieces: a truncate, then every row as ``+I``; only the last piece ends it.

    Args:
        mark: the received high mark.
        schema: the table's version.
        batches: its own columns.
        piece_rows: of one piece.
        before: what the schema event in front says of the version before.
    """
    events: Sequence[SystemEvent] = (
        _schema_event(mark.scn, schema, before),
        SystemEvent(mark.scn, 1, SystemKind.TRUNCATE, schema.table),
    )
    order = len(events)
    for batch in batches:
        for start in range(0, batch.num_rows, piece_rows):
            rows = batch.slice(start, piece_rows)
            yield _piece(mark, schema, rows, order, events, last=False)
            order, events = order + rows.num_rows, ()
    yield _piece(mark, schema, None, order, events, last=True)


def _piece(
    mark: ReceivedMark,
    schema: TableSchema,
    rows: pa.RecordBatch | None,
    order: int,
    events: Sequence[SystemEvent],
    *,
    last: bool,
) -> Block:
    count = rows.num_rows if rows is not None else 0
    entry = (mark.scn, mark.commit_us, 0, count + len(events), ORIGIN_SELECT, int(last))
    bodies = (
        (Body(schema.schema_id, schema.table, _change_rows(schema, rows, mark.scn, order, INSERT)),)
        if rows is not None
        else ()
    )
    # A window that is still open covers nothing yet.
    return Block(
        transaction_index([entry]), bodies, tuple(events), mark.scn if last else mark.scn - 1
    )
