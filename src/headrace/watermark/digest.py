"""One hash over the rows of a chunk, for its certificate.

It is worked out while the log stands still, so column by column and never row by row.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from blake3 import blake3

__all__ = ["rows_digest"]


def rows_digest(rows: pa.RecordBatch) -> str:
    """Return a BLAKE3, in hex: the same for equal rows, however Arrow holds them.

    Hashed are the number of rows and then, for each column: a byte a row that says whether it has a value; the length
    of each value where it varies, as four bytes, little end first; the values themselves, one behind the other. Where
    there is none, a value of fixed width is zero and another one is empty.

    Args:
        rows: columns of the neutral types.
    """
    digest = blake3(rows.num_rows.to_bytes(8, "little"))
    for column in rows.columns:
        for part in _parts(column):
            if part.nbytes:
                digest.update(part.cast("B"))
    return digest.hexdigest()


def _parts(column: pa.Array) -> Iterator[memoryview]:
    valid = np.asarray(column.is_valid())
    yield valid.view(np.uint8).data
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        cells = column.cast(pa.binary())
        if cells.null_count:
            cells = pc.fill_null(cells, b"")
        offsets = np.frombuffer(cells.buffers()[1], np.int32)[cells.offset :][: len(cells) + 1]
        yield np.diff(offsets).astype("<u4").data
        if len(cells) and offsets[-1] > offsets[0]:
            yield memoryview(cells.buffers()[2])[offsets[0] : offsets[-1]]
        return
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    width = column.type.bit_width // 8
    if not len(column):
        return
    raw = np.frombuffer(column.buffers()[1], np.uint8)[column.offset * width :]
    cells = raw[: len(column) * width].reshape(-1, width)
    if column.null_count:
        cells = np.where(valid[:, None], cells, 0).astype(np.uint8)
    yield np.ascontiguousarray(cells).data
