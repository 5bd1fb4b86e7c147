"""Digests of rows from Arrow values, in the text form that the source's server is asked for too.

Each cell becomes ``N`` (null) or ``<octets>:<text>``, the row's text is its cells one after the
other, and the hash of that text, MD5 or 16 bytes of SHA-256, is the row's digest; the key's cells alone give the
key's digest.
The first byte of the key's digest names one of 256 ranges, and a range is summed up as the number
of its rows and the exact sum of the leading 60 bits of their digests, so order does not matter and
copies count. The text of a cell by type:

    bool true/false · integers decimal · decimal(p,s) with s places · date days since 1970
    timestamps microseconds since 1970 UTC · floats their IEEE bytes, big-endian, in hex, one NaN
    binary hex · string itself

Where the form has wide floats, 32 bits are rendered as the same number in 64. `digest` in the packages of the sources
says the same in SQL; the values here must never come from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import md5, sha256

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.digest import DigestForm
from headrace.model.schema import TableSchema

__all__ = ["RANGES", "RangeSums", "RowDigests", "cell_texts", "digest_rows"]

MD5 = DigestForm()
"""What PostgreSQL computes fastest."""
RANGES = 256
"""Key ranges a table is summed up in."""
_SLICE_BYTES = 64 << 20
"""Rows rendered at once: their text must stay far below Arrow's 2 GiB for one array."""
_HEX = np.frombuffer(b"".join(b"%02x" % n for n in range(256)), np.uint16)

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class RowDigests:
    """Digests of some rows: rows × 16 bytes each; without a key both are the row's."""

    keys: Bytes
    rows: Bytes

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def ranges(self) -> npt.NDArray[np.uint8]:
        """Key range of each row."""
        return self.keys[:, 0]

    def pick(self, mask: npt.NDArray[np.bool_]) -> RowDigests:
        """Return the rows that the mask names."""
        return RowDigests(self.keys[mask], self.rows[mask])


@dataclass(slots=True)
class RangeSums:
    """Rows and sum of digests per key range."""

    counts: list[int] = field(default_factory=lambda: [0] * RANGES)
    sums: list[int] = field(default_factory=lambda: [0] * RANGES)

    @property
    def rows(self) -> int:
        """Rows in all ranges."""
        return sum(self.counts)

    def add(self, digests: RowDigests, weights: npt.NDArray[np.int64] | None = None) -> None:
        """Add rows, each once or as often as its weight says; negative weights take away."""
        leading = digests.rows[:, :8].copy().view(">u8").reshape(-1) >> 4
        if weights is not None:
            for place, weight in enumerate(weights.tolist()):
                self._add(int(digests.ranges[place]), weight, int(leading[place]) * weight)
            return
        # Two halves of 30 bits: 2**33 rows fit before a 64-bit sum overflows.
        high, low = leading >> np.uint64(30), leading & np.uint64((1 << 30) - 1)
        sums = np.zeros((2, RANGES), np.uint64)
        np.add.at(sums[0], digests.ranges, high)
        np.add.at(sums[1], digests.ranges, low)
        counts = np.bincount(digests.ranges, minlength=RANGES)
        for number in np.flatnonzero(counts).tolist():
            total = (int(sums[0, number]) << 30) + int(sums[1, number])
            self._add(number, int(counts[number]), total)

    def _add(self, number: int, count: int, total: int) -> None:
        self.counts[number] += count
        self.sums[number] += total

    def differing(self, other: RangeSums) -> list[int]:
        """Return the ranges that are not equal."""
        pairs = zip(self.counts, self.sums, other.counts, other.sums, strict=True)
        return [n for n, (count, total, c, t) in enumerate(pairs) if (count, total) != (c, t)]


def digest_rows(schema: TableSchema, batch: pa.RecordBatch, form: DigestForm = MD5) -> RowDigests:
    """Return the digests of rows that have the table's columns, in order."""
    keys, rows = [], []
    for part in _slices(batch):
        cells = [_cells(part.column(index), form) for index in range(len(schema.columns))]
        rows.append(_hashes(_joined(cells), form))
        if schema.key:
            keys.append(_hashes(_joined([cells[index] for index in schema.key_indexes]), form))
    whole = np.concatenate(rows) if rows else np.empty((0, 16), np.uint8)
    return RowDigests(np.concatenate(keys) if keys else whole, whole)


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.num_rows > 1 and batch.get_total_buffer_size() > _SLICE_BYTES:
        size = max(1, int(batch.num_rows * _SLICE_BYTES / batch.nbytes)) if batch.nbytes else 1
        for start in range(0, batch.num_rows, size):
            yield batch.slice(start, size)
    else:
        yield batch


def _joined(cells: list[pa.Array]) -> pa.Array:
    """Return one binary cell per row."""
    return cells[0] if len(cells) == 1 else pc.binary_join_element_wise(*cells, b"")


def _hashes(texts: pa.Array, form: DigestForm) -> Bytes:
    new = md5 if form.hash == "md5" else sha256
    digests = (new(text, usedforsecurity=False).digest()[:16] for text in texts.to_pylist())
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 16)


def _cells(column: pa.Array, form: DigestForm) -> pa.Array:
    """Return ``N`` or ``<octets>:<text>`` as binary."""
    if form.wide_floats and pa.types.is_float32(column.type):
        column = column.cast(pa.float64())
    texts = cell_texts(column).cast(pa.binary())
    lengths = pc.binary_length(texts).cast(pa.string()).cast(pa.binary())
    colon = pa.scalar(b":", pa.binary())
    cells = pc.binary_join_element_wise(lengths, colon, texts, b"")
    return pc.fill_null(cells, pa.scalar(b"N", pa.binary()))


def cell_texts(column: pa.Array) -> pa.Array:
    """Return the text of each cell (string or binary), null for null.

    Args:
        column: an array of a neutral type (`headrace.model.schema`).
    """
    type_ = column.type
    if pa.types.is_string(type_):
        return column
    if pa.types.is_floating(type_):
        return _float_texts(column)
    if pa.types.is_decimal(type_):
        return _decimal_texts(column)
    if pa.types.is_binary(type_):
        return _hex_texts(column)
    if pa.types.is_date32(type_):
        return column.cast(pa.int32()).cast(pa.string())
    if pa.types.is_timestamp(type_):
        return column.cast(pa.int64()).cast(pa.string())
    return column.cast(pa.string())


def _float_texts(column: pa.Array) -> pa.Array:
    """Return the IEEE bytes in hex; every NaN is the same one."""
    width = column.type.bit_width // 8
    # A copy: filling nulls may hand out the column's own memory.
    values = np.array(pc.fill_null(column, 0.0))
    values[np.isnan(values)] = np.nan
    raw = values.astype(values.dtype.newbyteorder(">")).view(np.uint8)
    texts = _fixed(_HEX[raw].view(np.uint8), 2 * width)
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.binary()))


def _fixed(data: Bytes, width: int) -> pa.Array:
    """Return bytes of equal width as binary cells."""
    count = len(data) // width
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def _hex_texts(column: pa.Array) -> pa.Array:
    """Return binary cells in hex: twice the bytes at twice the offsets."""
    column = pa.concat_arrays([column])
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column) + 1]
    if not len(column) or column.buffers()[2] is None:
        return column
    data = np.frombuffer(column.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    buffers = [
        None,
        pa.py_buffer(((offsets - offsets[0]) * 2).astype(np.int32)),
        pa.py_buffer(_HEX[data].view(np.uint8)),
    ]
    texts = pa.Array.from_buffers(pa.binary(), len(column), buffers)
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.binary()))


def _decimal_texts(column: pa.Array) -> pa.Array:
    """Return plain digits with all places of the scale; Arrow's own text may have an exponent."""
    scale = column.type.scale
    # The same 128-bit integers, read without a scale.
    unscaled = pa.Array.from_buffers(
        pa.decimal128(column.type.precision, 0),
        len(column),
        column.buffers(),
        offset=column.offset,
    ).cast(pa.string())
    if scale == 0:
        return unscaled
    negative = pc.starts_with(unscaled, "-")
    digits = pc.utf8_lpad(pc.utf8_ltrim(unscaled, "-"), scale + 1, "0")
    sign = pc.if_else(negative, "-", "")
    whole = pc.utf8_slice_codeunits(digits, 0, -scale)
    places = pc.utf8_slice_codeunits(digits, -scale)
    point = pa.scalar(".")
    return pc.binary_join_element_wise(sign, whole, point, places, "")
