"""Bring change rows of an older table version into a newer version's columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.errors import IncompatibleSchemaChange
from headrace.model.change import META, change_schema, missing_matrix, pack_missing
from headrace.model.schema import TableSchema

__all__ = ["cells_as", "promote"]


def promote(batch: pa.RecordBatch, old: TableSchema, new: TableSchema) -> pa.RecordBatch:
    """Return the same changes with the columns of ``new``.

    A column that ``old`` does not have is null: rows of that time had no value for it. A column whose type grew
    is cast exactly. A column that ``new`` does not have is left out.

    Raises:
        IncompatibleSchemaChange: a value does not fit the new type.
    """
    if old == new:
        return batch
    target = change_schema(new)
    places = {name: index for index, name in enumerate(old.names)}
    cells: list[pa.Array] = [batch.column(name) for name in META]
    if batch.column("_missing").null_count < batch.num_rows:
        missing = missing_matrix(batch.column("_missing"), len(old.columns))
        moved = np.zeros((batch.num_rows, len(new.columns)), bool)
        for index, name in enumerate(new.names):
            if name in places:
                moved[:, index] = missing[:, places[name]]
        masks = [pack_missing(np.flatnonzero(row), len(new.columns)) for row in moved]
        cells[3] = pa.array(masks, pa.binary())
    cells += cells_as(batch, new, "{column} changed to {type}, which cannot hold its older values.")
    return pa.record_batch(cells, schema=target)


def cells_as(batch: pa.RecordBatch, schema: TableSchema, refusal: str) -> list[pa.Array]:
    """Return the columns of a table version, taken from a batch by name and cast exactly; null where it has none.

    Args:
        batch: rows of the same table in another version.
        schema: the version.
        refusal: what to say when values do not fit; ``{column}`` and ``{type}`` stand for what they do not fit into.

    Raises:
        IncompatibleSchemaChange: a value does not fit.
    """
    cells = []
    for column in schema.columns:
        place = batch.schema.get_field_index(column.name)
        if place < 0:
            cells.append(pa.nulls(batch.num_rows, column.type))
            continue
        try:
            cells.append(batch.column(place).cast(column.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            name = f"{schema.table}.{column.name}"
            raise IncompatibleSchemaChange(
                refusal.format(column=name, type=column.source_type),
                next_step=f"copy the table again: headrace dump start FILE --table {schema.table}.",
            ) from error
    return cells
