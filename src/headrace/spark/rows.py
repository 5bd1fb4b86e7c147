"""What a task does with its slice: blocks in, record batches out. No pyspark, no state, runs in Python workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from headrace.errors import IncompatibleSchemaChange
from headrace.fold import combine, fold, folded_schema, promote
from headrace.model.block import Block, SystemKind
from headrace.model.change import change_schema
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
) -> Iterator[pa.RecordBatch]:
    """Yield the change rows of a slice in ``(scn, ord)`` order, in the columns of ``schema``."""
    refs = [ref for ref in part.refs if any(held in versions for held, _ in ref.tables)]
    for block in log.read(refs, versions):
        yield from rows_of_block(block, registry, schema, versions, part)


def rows_of_block(
    block: Block, registry: Registry, schema: TableSchema, versions: Versions, part: Slice[R]
) -> Iterator[pa.RecordBatch]:
    """Yield the change rows of a block that belong to a slice, in ``(scn, ord)`` order."""
    batches = []
    for body in block.bodies:
        if (rows := _within(body.batch, part)).num_rows:
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
) -> Iterator[pa.RecordBatch]:
    """Yield the folded form of a slice, with `SLICE_COLUMN` in front."""
    batches = list(change_batches(log, registry, schema, versions, part))
    folded = fold(schema, batches, _truncates(log, schema, part))
    numbers = pa.array(np.full(folded.num_rows, part.number, np.int32))
    table = folded.add_column(0, pa.field(SLICE_COLUMN, pa.int32(), nullable=False), numbers)
    yield from table.combine_chunks().to_batches(max_chunksize=BATCH_ROWS)


def _truncates(log: Log[R], schema: TableSchema, part: Slice[R]) -> list[tuple[int, int]]:
    """Return where the table was truncated inside the slice."""
    return [
        (event.scn, event.ord)
        for block in log.read([ref for ref in part.refs if ref.has_system], ())
        for event in block.system
        if event.kind is SystemKind.TRUNCATE
        and event.table == schema.table
        and part.after_scn < event.scn <= part.upto_scn
    ]


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
