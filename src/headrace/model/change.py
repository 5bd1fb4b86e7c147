"""Weighted rows: how a change looks in Arrow.

A change is one or two rows of the table's own columns behind four meta columns::

    _scn      int64   number of the transaction, rises in commit order
    _ord      int32   place of the row inside its transaction
    _op       string  one of the codes below
    _missing  binary  bit mask of columns the source did not send, null when it sent all

``_missing`` has one bit per table column, bit i of byte i // 8 (least significant first) for column i.
A missing cell is null in its column, and is neither null nor a value.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.schema import TableSchema

__all__ = [
    "DELETE",
    "INSERT",
    "META",
    "META_FIELDS",
    "MINUS",
    "PATCH",
    "PLUS",
    "READ",
    "TRUNCATE",
    "UPDATE_NEW",
    "UPDATE_OLD",
    "change_schema",
    "missing_matrix",
    "pack_missing",
    "table_arrow_schema",
]

INSERT = "+I"
"""A row came to be; weight +1."""
UPDATE_OLD = "-U"
"""Image before an update; weight −1. Its ``+U`` is the very next row."""
UPDATE_NEW = "+U"
"""Image after an update; weight +1."""
PATCH = "=U"
"""Update in place whose old image the source did not send; no weight: patches the row of its key."""
DELETE = "-D"
"""A row ceased to be; weight −1."""
READ = "+R"
"""Row of a chunk read; no weight: states the whole row at its position."""
TRUNCATE = "T"
"""Only where changes are kept as rows: every row of the table ceased to be; a row without cells."""

PLUS = frozenset({INSERT, UPDATE_NEW})
MINUS = frozenset({DELETE, UPDATE_OLD})

META = ("_scn", "_ord", "_op", "_missing")
META_FIELDS = [
    pa.field("_scn", pa.int64(), nullable=False),
    pa.field("_ord", pa.int32(), nullable=False),
    pa.field("_op", pa.string(), nullable=False),
    pa.field("_missing", pa.binary()),
]


def table_arrow_schema(schema: TableSchema) -> pa.Schema:
    """Return the Arrow schema of the table's own columns; the source's type rides in field metadata.

    Every field is nullable here: key-only images and missing cells are null.
    """
    return pa.schema(
        [pa.field(c.name, c.type, metadata={"source_type": c.source_type}) for c in schema.columns]
    )


def change_schema(schema: TableSchema) -> pa.Schema:
    """Return the Arrow schema of change rows: the four meta columns, then the table's own."""
    return pa.schema([*META_FIELDS, *table_arrow_schema(schema)])


def pack_missing(indexes: Iterable[int], column_count: int) -> bytes | None:
    """Return the ``_missing`` cell for the given column places, or None when there are none."""
    mask = bytearray((column_count + 7) // 8)
    found = False
    for index in indexes:
        mask[index // 8] |= 1 << (index % 8)
        found = True
    return bytes(mask) if found else None


def missing_matrix(cells: pa.Array, column_count: int) -> npt.NDArray[np.bool_]:
    """Return a rows × columns matrix, true where the cell was not sent.

    Args:
        cells: the ``_missing`` column.
        column_count: columns of the table; masks written for fewer columns are padded with false.
    """
    matrix = np.zeros((len(cells), column_count), dtype=bool)
    if cells.null_count == len(cells):
        return matrix
    held = np.flatnonzero(np.asarray(cells.is_valid()))
    masks = cells.drop_null()
    lengths = np.asarray(pc.binary_length(masks))
    for length in np.unique(lengths):
        same = np.flatnonzero(lengths == length)
        raw = b"".join(masks.take(pa.array(same)).to_pylist())
        packed = np.frombuffer(raw, np.uint8).reshape(len(same), length)
        bits = np.unpackbits(packed, axis=1, bitorder="little")[:, :column_count]
        matrix[held[same], : bits.shape[1]] = bits
    return matrix
