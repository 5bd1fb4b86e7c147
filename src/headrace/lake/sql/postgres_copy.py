"""Arrow rows as PostgreSQL's binary COPY, a piece at a time, without a Python object per cell.

In: columns of neutral types. Out: bytes that ``COPY … FROM STDIN (FORMAT binary)`` takes, decimals as text. Dates and
timestamps at the ends of their integers are infinite, here as there.

Source: PostgreSQL documentation, "COPY", binary format.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["END", "START", "copy_pieces"]

START = b"PGCOPY\n\xff\r\n\0" + bytes(8)
"""What comes before the first row."""
END = b"\xff\xff"
"""What comes behind the last."""

_PIECE_ROWS = 32_768
_PIECE_BYTES = 32 * 2**20
_EPOCH_DAYS = 10_957
"""From 1970 to 2000, where PostgreSQL counts from."""
_EPOCH_US = _EPOCH_DAYS * 86_400_000_000
_NULL = pa.scalar(b"\xff\xff\xff\xff", pa.binary())


def copy_pieces(rows: pa.Table) -> Iterator[bytes]:
    """Yield the bytes of all rows, in order."""
    size = max(rows.nbytes, 1)
    step = int(max(1, min(_PIECE_ROWS, _PIECE_BYTES * rows.num_rows // size)))
    head = pa.scalar(rows.num_columns.to_bytes(2, "big"), pa.binary())
    for begin in range(0, rows.num_rows, step):
        piece = rows.slice(begin, step).combine_chunks()
        parts: list[pa.Array | pa.Scalar] = [head]
        for column in piece.columns:
            parts += _field(pa.concat_arrays(column.chunks))
        lines = pc.binary_join_element_wise(
            *parts, b"", null_handling="replace", null_replacement=b""
        )
        yield _data(lines)


def _data(lines: pa.Array) -> bytes:
    """Return what lies in memory behind binary cells, which is all of them in order."""
    offsets = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset :]
    return bytes(lines.buffers()[2][int(offsets[0]) : int(offsets[len(lines)])])


def _field(column: pa.Array) -> list[pa.Array]:
    """Return length and value of each cell."""
    type_ = column.type
    if pa.types.is_decimal(type_):
        column = column.cast(pa.string())
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        cells = column.cast(pa.binary())
        lengths = np.asarray(pc.fill_null(pc.binary_length(cells), -1)).astype(">i4")
        return [_cells(lengths.view(np.uint8).reshape(-1, 4)), cells]
    values = _numbers(column)
    width = values.dtype.itemsize
    matrix = np.empty((len(values), 4 + width), np.uint8)
    matrix[:, :4] = np.frombuffer(width.to_bytes(4, "big"), np.uint8)
    matrix[:, 4:] = np.ascontiguousarray(values).view(np.uint8).reshape(-1, width)
    return [pc.if_else(column.is_valid(), _cells(matrix), _NULL)]


def _numbers(column: pa.Array) -> npt.NDArray[np.generic]:
    """Return the values in PostgreSQL's byte order and epoch; nulls are anything."""
    type_ = column.type
    if pa.types.is_boolean(type_):
        return np.asarray(pc.fill_null(column, False)).astype(np.uint8)
    if pa.types.is_floating(type_):
        # Not through numbers of Python: the bits of NaN stay.
        raw = np.asarray(
            column.view(pa.int32() if type_.bit_width == 32 else pa.int64()).fill_null(0)
        )
        return raw.astype(raw.dtype.newbyteorder(">"))
    if pa.types.is_date32(type_):
        return _since_2000(np.asarray(column.view(pa.int32()).fill_null(0)), _EPOCH_DAYS)
    if pa.types.is_timestamp(type_):
        return _since_2000(np.asarray(column.view(pa.int64()).fill_null(0)), _EPOCH_US)
    values = np.asarray(column.fill_null(0))
    return values.astype(values.dtype.newbyteorder(">"))


def _since_2000(values: npt.NDArray[np.signedinteger], epoch: int) -> npt.NDArray[np.generic]:
    bounds = np.iinfo(values.dtype)
    finite = (values != bounds.min) & (values != bounds.max)
    moved = values.copy()
    moved[finite] -= epoch
    return moved.astype(values.dtype.newbyteorder(">"))


def _cells(matrix: npt.NDArray[np.uint8]) -> pa.Array:
    """Return the rows of a byte matrix as binary cells."""
    rows, width = matrix.shape
    offsets = np.arange(0, (rows + 1) * width, width, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(matrix))]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)
