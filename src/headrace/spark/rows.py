"""What a task does with its slice: blocks in, record batches out. No pyspark, no state, runs in Python workers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import IncompatibleSchemaChange
from headrace.fold import combine, fold, folded_schema, promote
from headrace.model.block import ORIGIN_LOG, Block, SystemKind
from headrace.model.change import TRUNCATE, change_schema
from headrace.model.schema import TableSchema
from headrace.spark.log import Log, R, Registry
from headrace.spark.slices import Slice

__all__ = [
    "BATCH_ROWS",
    "SLICE_COLUMN",
    "Versions",
    "change_batches",
    "combine_slices",
    "folded_batches",
    "rows_of_block",
    "truncates_of",
]

SLICE_COLUMN = "_slice"
"""Place of a folded row's slice in its batch; folded slices are combined in this order."""

Versions = Mapping[int, Mapping[str, str] | None]
"""Per version of a table: the names of its columns in the version to come to, None where nobody knows them."""

BATCH_ROWS = 65_536
"""Rows of a record batch that goes to Spark."""


def change_batches(
    log: Log[R],
    registry: Registry,
    schema: TableSchema,
    versions: Versions,
    part: Slice[R],
    ignored: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield the change rows of a slice in ``(scn, ord)`` order, in the columns of ``schema``."""
    refs = [ref for ref in part.refs if any(held in versions for held, _ in ref.tables)]
    for block in log.read(refs, versions):
        yield from rows_of_block(block, registry, schema, versions, part, ignored)


def rows_of_block(
    block: Block,
    registry: Registry,
    schema: TableSchema,
    versions: Versions,
    part: Slice[R],
    ignored: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield the change rows of a block that belong to a slice, in ``(scn, ord)`` order.

    Args:
        block: whose rows.
        registry: of all versions.
        schema: to whose columns they come.
        versions: of the rows.
        part: the slice.
        ignored: operations of the source's own transactions that are left out; windows of ours come whole.
    """
    batches = []
    for body in block.bodies:
        if (rows := _wanted(_within(body.batch, part), block, ignored)).num_rows:
            names = _known(versions[body.schema_id], schema)
            batches.append(promote(rows, registry.get(body.schema_id), schema, names))
    if len(batches) < 2:
        yield from batches
        return
    both = pa.Table.from_batches(batches, schema=change_schema(schema))
    ordered = both.sort_by([("_scn", "ascending"), ("_ord", "ascending")]).combine_chunks()
    yield from ordered.to_batches()


def _known(names: Mapping[str, str] | None, schema: TableSchema) -> Mapping[str, str]:
    if names is None:
        raise IncompatibleSchemaChange(
            f"A column of {schema.table} was dropped or renamed amid a transaction, nobody knows which.",
            next_step=f"copy the table again: headrace dump start FILE --table {schema.table}.",
        )
    return names


def _wanted(rows: pa.RecordBatch, block: Block, ignored: Collection[str]) -> pa.RecordBatch:
    if not ignored or not rows.num_rows:
        return rows
    place = np.searchsorted(block.index["scn"], rows.column("_scn").to_numpy())
    ours = pa.array(block.index["origin"][place] != ORIGIN_LOG)
    named = pc.is_in(rows.column("_op").cast(pa.string()), pa.array(sorted(ignored)))
    return rows.filter(pc.or_(ours, pc.invert(named)))


def _within(batch: pa.RecordBatch, part: Slice[R]) -> pa.RecordBatch:
    """Return the rows whose transactions belong to the slice."""
    scn = batch.column("_scn").to_numpy()
    begin, end = np.searchsorted(scn, [part.after_scn, part.upto_scn], side="right")
    return batch.slice(int(begin), int(end - begin))


def folded_batches(
    log: Log[R],
    registry: Registry,
    schema: TableSchema,
    versions: Versions,
    part: Slice[R],
    ignored: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield the folded form of a slice, with `SLICE_COLUMN` in front."""
    batches = list(change_batches(log, registry, schema, versions, part, ignored))
    folded = fold(schema, batches, _truncates(log, schema, part, ignored))
    numbers = pa.array(np.full(folded.num_rows, part.number, np.int32))
    table = folded.add_column(0, pa.field(SLICE_COLUMN, pa.int32(), nullable=False), numbers)
    yield from table.combine_chunks().to_batches(max_chunksize=BATCH_ROWS)


def _truncates(
    log: Log[R], schema: TableSchema, part: Slice[R], ignored: Collection[str]
) -> list[tuple[int, int]]:
    """Return where the table was truncated inside the slice."""
    return [
        place
        for block in log.read([ref for ref in part.refs if ref.has_system], ())
        for place in truncates_of(block, schema, part, ignored)
    ]


def truncates_of(
    block: Block, schema: TableSchema, part: Slice[R], ignored: Collection[str]
) -> Iterator[tuple[int, int]]:
    """Yield where a block truncates the table inside a slice; arguments as of `rows_of_block`."""
    for event in block.system:
        if event.kind is not SystemKind.TRUNCATE or event.table != schema.table:
            continue
        if not part.after_scn < event.scn <= part.upto_scn:
            continue
        if TRUNCATE in ignored and not event.payload.get("anew"):
            place = int(np.searchsorted(block.index["scn"], event.scn))
            if block.index["origin"][place] == ORIGIN_LOG:
                continue
        yield event.scn, event.ord


def combine_slices(
    schema: TableSchema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the folded form of a whole batch from those of its slices, which may come in any order."""
    form = folded_schema(schema)
    parts: dict[int, list[pa.RecordBatch]] = {}
    for batch in batches:
        numbers = batch.column(0).to_numpy()
        rest = batch.select(form.names)
        for number in np.unique(numbers):
            parts.setdefault(int(number), []).append(rest.filter(pa.array(numbers == number)))
    whole = form.empty_table()
    for number in sorted(parts):
        piece = pa.Table.from_batches(parts[number]).cast(form)
        whole = combine(schema, whole, _all_dead_first(piece))
    yield from whole.combine_chunks().to_batches(max_chunksize=BATCH_ROWS)


def _all_dead_first(folded: pa.Table) -> pa.Table:
    """Return the folded form with its truncate, if any, where `combine` looks for it."""
    return folded.take(
        pa.array(np.argsort(folded["_effect"].to_numpy() != "ALL_DEAD", kind="stable"))
    )
