"""Byte-exact encoding of rows and keys: the only equality that headrace uses.

Two rows have equal encodings exactly when each cell has the same Arrow value bit for bit (or both are
null), so the log's and the chunk's rendering of one key meet here and nowhere else. No order is implied: only
the database orders keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["encode_rows"]


def encode_rows(columns: Sequence[pa.Array]) -> pa.Array:
    """Return one binary cell per row.

    Args:
        columns: arrays of equal length, of the neutral types; at least one.

    Each cell is a byte 0 (null) or 1 followed by the value: fixed width as it lies in memory, variable width
    behind a 4-byte big-endian length.
    """
    parts: list[pa.Array] = []
    for column in columns:
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            parts += _variable(column)
        else:
            parts.append(_fixed(column))
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(*parts, b"", null_handling="replace", null_replacement=b"")


def _variable(column: pa.Array) -> list[pa.Array]:
    """Return the flag and length as 5 bytes, then the bytes themselves."""
    cells = column.cast(pa.binary())
    lengths = np.asarray(pc.fill_null(pc.binary_length(cells), 0)).astype(">u4")
    head = np.empty((len(cells), 5), np.uint8)
    head[:, 0] = np.asarray(column.is_valid()).astype(np.uint8)
    head[:, 1:] = lengths.view(np.uint8).reshape(-1, 4)
    return [_binary(head), cells]


def _fixed(column: pa.Array) -> pa.Array:
    """Return flag and value, ``1 + width`` bytes a row."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    width = column.type.bit_width // 8
    raw = np.frombuffer(column.buffers()[1], np.uint8) if len(column) else np.empty(0, np.uint8)
    start = column.offset * width
    cells = np.empty((len(column), 1 + width), np.uint8)
    valid = np.asarray(column.is_valid())
    cells[:, 0] = valid
    cells[:, 1:] = raw[start : start + len(column) * width].reshape(-1, width)
    cells[~valid] = 0
    return _binary(cells)


def _binary(cells: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> pa.Array:
    """Return the rows of a byte matrix as binary cells."""
    rows, width = cells.shape
    offsets = np.arange(0, (rows + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(cells))]
    )
