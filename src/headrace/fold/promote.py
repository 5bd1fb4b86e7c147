"""Bring change rows of an older table version into a newer version's columns."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import IncompatibleSchemaChange
from headrace.fold.followed import masks
from headrace.model.change import INSERT, META, PATCH, READ, change_schema, missing_matrix
from headrace.model.schema import TableSchema

__all__ = ["cells_as", "promote", "renamed"]


def promote(
    batch: pa.RecordBatch,
    old: TableSchema,
    new: TableSchema,
    names: Mapping[str, str] | None = None,
) -> pa.RecordBatch:
    """Return the same changes with the columns of ``new``.

    A column that ``old`` does not have is null: rows of that time had no value for it. A column whose type grew
    is cast exactly. A column that ``new`` does not have is left out. A column that the target keeps is missing in
    every change but an insert, so that rows keep what they had; a row that was read again is a patch of it then.

    Args:
        batch: changes.
        old: their version.
        new: the version to bring them to.
        names: the name in ``new`` of each column of ``old`` that lives on; columns are known by name when None.

    Raises:
        IncompatibleSchemaChange: a value does not fit the new type.
    """
    if old == new:
        return batch
    target = change_schema(new)
    later = {name: name for name in old.names} if names is None else names
    places = {later[name]: index for index, name in enumerate(old.names) if name in later}
    cells: list[pa.Array] = [batch.column(name) for name in META]
    kept = [i for i, name in enumerate(new.names) if name in new.kept and name not in places]
    if kept or batch.column("_missing").null_count < batch.num_rows:
        missing = missing_matrix(batch.column("_missing"), len(old.columns))
        moved = np.zeros((batch.num_rows, len(new.columns)), bool)
        for index, name in enumerate(new.names):
            if name in places:
                moved[:, index] = missing[:, places[name]]
        if kept:
            ops = batch.column("_op")
            moved[:, kept] = np.asarray(pc.not_equal(ops, INSERT))[:, None]
            cells[2] = pc.if_else(pc.equal(ops, READ), PATCH, ops)
        cells[3] = masks(moved)
    refusal = "{column} changed to {type}, which cannot hold its older values."
    cells += cells_as(renamed(batch, later), new, refusal)
    return pa.record_batch(cells, schema=target)


def renamed(batch: pa.RecordBatch, names: Mapping[str, str]) -> pa.RecordBatch:
    """Return the columns that live on, under their later names.

    Args:
        batch: rows of a table.
        names: see `headrace.model.succession.successors`.
    """
    kept = [name for name in batch.schema.names if name in names]
    return batch.select(kept).rename_columns([names[name] for name in kept])


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
