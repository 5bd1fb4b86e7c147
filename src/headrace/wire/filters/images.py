"""What a chosen part of a table's changes looks like, so that it is a stream of changes again.

An update is two images of one row. Where only one of them is wanted, the row leaves or comes for whoever asked:

    the old image alone                    ``-D``  the row leaves
    the new image alone, whole             ``+I``  the row comes
    the new image alone, columns missing   ``=U``  the row comes, and what it did not carry is held by nobody who asked
    an update in place whose old image     ``-D``  the row leaves, if it was there at all; with nothing but its key
      is unknown and whose new is unwanted
    an unwanted row read by its key        ``-D``  likewise

So each image is chosen by itself, which is what keeps weights right: summed over the chosen images, they are those of
the chosen rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.change import (
    DELETE,
    INSERT,
    META,
    PATCH,
    UPDATE_NEW,
    UPDATE_OLD,
    missing_matrix,
)
from headrace.model.schema import KeyCheck, TableSchema
from headrace.wire.filters.values import Bools, Rows

__all__ = ["filled", "has_op", "rewritten", "rows_of", "selected"]


def rows_of(batch: pa.RecordBatch, schema: TableSchema) -> Rows:
    """Return the change rows with what they miss."""
    cells = batch.column("_missing")
    if cells.null_count == len(cells):
        return Rows(batch, None)
    return Rows(batch, missing_matrix(cells, len(schema.columns)))


def has_op(rows: Rows, op: str) -> Bools:
    """Return which rows have an operation."""
    return np.asarray(pc.equal(rows.batch.column("_op"), op))


def filled(rows: Rows, schema: TableSchema) -> Rows:
    """Return the rows with each new image filled from its old one, as far as that carries what is missing."""
    if rows.missing is None or not len(rows.missing):
        return rows
    comes = has_op(rows, UPDATE_NEW)
    known = ~np.roll(rows.missing, 1, axis=0)
    fill = rows.missing & known & comes[:, np.newaxis]
    if not fill.any():
        return rows
    places = np.arange(len(comes))
    batch = rows.batch
    for index in np.flatnonzero(fill.any(axis=0)).tolist():
        name = schema.columns[index].name
        cells = batch.column(name).take(pa.array(places - fill[:, index]))
        batch = batch.set_column(
            batch.schema.get_field_index(name), batch.schema.field(name), cells
        )
    return _with_missing(batch, rows.missing & ~fill)


def rewritten(rows: Rows, keep: Bools, gone: Bools, schema: TableSchema) -> tuple[Rows, Bools]:
    """Return rows whose operations say what is left of them, and which of them are wanted.

    Args:
        rows: whole updates: old and new image are neighbours.
        keep: rows that are wanted.
        gone: single images of unwanted rows that may have been wanted before.
        schema: the table's version.
    """
    old, new = has_op(rows, UPDATE_OLD), has_op(rows, UPDATE_NEW)
    leaves = old & keep & ~np.roll(keep, -1)
    comes = new & keep & ~np.roll(keep, 1)
    if gone.any():
        rows = _key_only(rows, gone, schema)
    if not (leaves.any() or comes.any() or gone.any()):
        return rows, keep
    patches = comes & (rows.missing.any(axis=1) if rows.missing is not None else False)
    ops = rows.batch.column("_op")
    for where, op in ((comes, INSERT), (patches, PATCH), (leaves | gone, DELETE)):
        ops = pc.if_else(pa.array(where), op, ops)
    batch = rows.batch.set_column(META.index("_op"), rows.batch.schema.field("_op"), ops)
    return Rows(batch, rows.missing), keep | gone


def selected(rows: Rows, keep: Bools, places: list[int], schema: TableSchema) -> pa.RecordBatch:
    """Return the wanted rows with the columns at the given places alone, ascending; views where that is all.

    The bits of ``_missing`` stand for these columns, in their order.
    """
    batch = rows.batch
    if len(places) < len(schema.columns):
        if rows.missing is not None:
            batch = _with_missing(batch, rows.missing[:, places]).batch
        batch = batch.select([*META, *(schema.columns[place].name for place in places)])
    return batch if keep.all() else batch.filter(pa.array(keep))


def _key_only(rows: Rows, where: Bools, schema: TableSchema) -> Rows:
    """Return the rows with nothing but the key sent in some of them.

    A key that is checked late needs whole images: there the nulls are the image, as in a window's own deletes.
    """
    missing = rows.missing
    if missing is None:
        missing = np.zeros((rows.batch.num_rows, len(schema.columns)), bool)
    others = np.array([name not in schema.key for name in schema.names])
    batch, blank = rows.batch, pa.array(where)
    for name in np.array(schema.names)[others].tolist():
        field = batch.schema.field(name)
        cells = pc.if_else(blank, pa.scalar(None, field.type), batch.column(name))
        batch = batch.set_column(batch.schema.get_field_index(name), field, cells)
    if schema.key_check is not KeyCheck.IMMEDIATE:
        return Rows(batch, rows.missing)
    return _with_missing(batch, missing | (where[:, np.newaxis] & others))


def _with_missing(batch: pa.RecordBatch, missing: Bools) -> Rows:
    """Return the rows with the mask that a matrix stands for."""
    place = META.index("_missing")
    cells = _masks(missing)
    return Rows(batch.set_column(place, batch.schema.field(place), cells), missing)


def _masks(missing: Bools) -> pa.Array:
    """Return the ``_missing`` cells of a matrix, null where nothing is missing; `missing_matrix` reads them back."""
    held = missing.any(axis=1)
    packed = np.packbits(missing[held], axis=1, bitorder="little")
    offsets = np.zeros(len(missing) + 1, np.int32)
    np.cumsum(held * packed.shape[1], out=offsets[1:])
    valid = np.packbits(held, bitorder="little")
    return pa.Array.from_buffers(
        pa.binary(), len(missing), [pa.py_buffer(b) for b in (valid, offsets, packed.tobytes())]
    )
