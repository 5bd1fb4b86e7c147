"""Binary forms of cells to Arrow columns, for binary COPY and for a log that is sent in binary.

A binary form is read where it says exactly what the type's text says, and gives the same Arrow value. `_native` has the
same readers in C, and leaves to these what is rare or broken.

Each field is a slice of its own, so nothing can be read past it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ProtocolError
from headrace.model.schema import TableSchema
from headrace.sources.postgres.messages import Binary
from headrace.sources.postgres.types import Form
from headrace.sources.postgres.values import build_column

__all__ = ["binary_column", "mixed_column"]

Cells: TypeAlias = Sequence[bytes | None]

# PostgreSQL counts from 2000-01-01.
_EPOCH_DAYS = 10_957
_EPOCH_MICROS = _EPOCH_DAYS * 86_400_000_000
_DAY_MICROS = 86_400_000_000

_NUMERIC_HEAD = struct.Struct(">HhHH")
_NEGATIVE = 0x4000
_SPECIAL = {0xC000: b"NaN", 0xD000: b"Infinity", 0xF000: b"-Infinity"}
_SCALE_LIMIT = 0x3FFF
_BASE = 10_000


def mixed_column(schema: TableSchema, place: int, form: Form, cells: Cells) -> pa.Array:
    """Return one column from cells that are text, or `Binary`.

    Raises:
        ProtocolError: bytes that are no value of the column's type.
        UndecodableValue: a value has no exact place in the column's type.
    """
    there = [isinstance(cell, Binary) for cell in cells]
    if not any(there):
        return build_column(schema, place, cells)
    pairs = list(zip(cells, there, strict=True))
    fields = binary_column(schema, place, form, [cell if b else None for cell, b in pairs])
    texts = build_column(schema, place, [None if b else cell for cell, b in pairs])
    return pc.if_else(pa.array(there), fields, texts)


def binary_column(schema: TableSchema, place: int, form: Form, cells: Cells) -> pa.Array:
    """Return one column from the binary forms of its cells.

    Raises:
        ProtocolError: bytes that are no value of the column's type.
        UndecodableValue: a value has no exact place in the column's type.
    """
    type_ = schema.columns[place].type
    if form is Form.NUMERIC:
        return _numeric(schema, place, cells)
    if form is Form.UUID:
        return _uuid(schema, place, cells)
    if form is Form.JSONB:
        return _jsonb(schema, place, cells)
    if form is Form.OID:
        values, nulls = _fixed(cells, ">u4")
        return pa.array(values, pa.uint32(), mask=nulls).cast(type_)
    if form is Form.TIME:
        return _times(schema, place, cells)
    if form is Form.SKIPPED:
        return pa.array([None if cell is None else "" for cell in cells], type_)
    if form is Form.UNKNOWN:
        _malformed(f"a binary value of {schema.columns[place].source_type}")
    if pa.types.is_string(type_):
        return build_column(schema, place, cells)
    if pa.types.is_binary(type_):
        return pa.array(cells, type_)
    if pa.types.is_boolean(type_):
        return _booleans(schema, place, cells)
    if pa.types.is_date(type_):
        return _dates(schema, place, cells)
    if pa.types.is_timestamp(type_):
        return _timestamps(schema, place, cells)
    return _numbers(schema, place, cells)


def _malformed(what: str) -> NoReturn:
    raise ProtocolError(
        f"A binary value is malformed: {what}.",
        next_step="report it with the server's version; capture stops rather than guess.",
    )


def _fixed(cells: Cells, dtype: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
    """Return values of equal width in memory order, and where they are null (None: nowhere)."""
    wire = np.dtype(dtype)
    nulls = None
    if None in cells:
        nulls = np.array([cell is None for cell in cells], np.bool_)
        blank = bytes(wire.itemsize)
        cells = [blank if cell is None else cell for cell in cells]
    present = cast("Sequence[bytes]", cells)
    if set(map(len, present)) - {wire.itemsize}:
        _malformed(f"a field that is not {wire.itemsize} bytes wide")
    values = np.frombuffer(b"".join(present), wire)
    return values.astype(wire.newbyteorder("=")), nulls


def _numbers(schema: TableSchema, place: int, cells: Cells) -> pa.Array:
    type_ = schema.columns[place].type
    floating = pa.types.is_floating(type_)
    values, nulls = _fixed(cells, f">{'f' if floating else 'i'}{type_.bit_width // 8}")
    if floating:
        # Sign and payload of NaN are not in its text.
        values[np.isnan(values)] = np.nan
    return pa.array(values, type_, mask=nulls)


def _booleans(schema: TableSchema, place: int, cells: Cells) -> pa.Array:
    values, nulls = _fixed(cells, ">u1")
    if values.max(initial=0) > 1:
        _malformed("a boolean that is neither 0 nor 1")
    return pa.array(values.astype(np.bool_), schema.columns[place].type, mask=nulls)


def _dates(schema: TableSchema, place: int, cells: Cells) -> pa.Array:
    days = _since_1970(schema, place, cells, ">i4", _EPOCH_DAYS)
    return days.cast(pa.date32())


def _timestamps(schema: TableSchema, place: int, cells: Cells) -> pa.Array:
    micros = _since_1970(schema, place, cells, ">i8", _EPOCH_MICROS)
    return micros.cast(schema.columns[place].type)


def _since_1970(schema: TableSchema, place: int, cells: Cells, dtype: str, epoch: int) -> pa.Array:
    """Return what counts from 2000 counted from 1970; both ends of the integers stay where they are."""
    values, nulls = _fixed(cells, dtype)
    limits = np.iinfo(values.dtype)
    endless = (values == limits.max) | (values == limits.min)
    # What would lie at the upper end or beyond it.
    if (~endless & (values >= limits.max - epoch)).any():
        # The log's path has the words: this raises.
        return build_column(schema, place, _BEYOND)
    moved = values + np.where(endless, 0, epoch).astype(values.dtype)
    return pa.array(moved, mask=nulls)


_BEYOND = [b"beyond the range"]


def _times(schema: TableSchema, place: int, cells: Cells) -> pa.Array:
    values, nulls = _fixed(cells, ">i8")
    if values.size and (values.min() < 0 or values.max() > _DAY_MICROS):
        _malformed("a time beyond its day")
    texts = [_time_text(us) for us in values.tolist()]
    return pa.array(texts, schema.columns[place].type, mask=nulls)


def _time_text(us: int) -> str:
    seconds, fraction = divmod(us, 1_000_000)
    tail = f".{fraction:06d}".rstrip("0") if fraction else ""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{tail}"


def _uuid(schema: TableSchema, place: int, cells: Cells) -> pa.Array:
    if set(map(len, filter(None, cells))) - {16} or b"" in cells:
        _malformed("a uuid that is not 16 bytes wide")
    texts = (None if cell is None else cell.hex() for cell in cells)
    return pa.array(
        [t and f"{t[:8]}-{t[8:12]}-{t[12:16]}-{t[16:20]}-{t[20:]}" for t in texts],
        schema.columns[place].type,
    )


def _jsonb(schema: TableSchema, place: int, cells: Cells) -> pa.Array:
    """Text behind a version."""
    if any(cell is not None and cell[:1] != b"\1" for cell in cells):
        _malformed("a jsonb of an unknown version")
    return build_column(schema, place, [cell and cell[1:] for cell in cells])


def _numeric(schema: TableSchema, place: int, cells: Cells) -> pa.Array:
    texts = [None if cell is None else _numeric_text(cell) for cell in cells]
    return build_column(schema, place, texts)


def _numeric_text(cell: bytes) -> bytes:
    """Return a numeric as the server writes it: base 10,000 digits, to as many places as its scale says."""
    if len(cell) < _NUMERIC_HEAD.size:
        _malformed(f"a numeric of {len(cell)} bytes")
    count, weight, sign, scale = _NUMERIC_HEAD.unpack_from(cell)
    if len(cell) != _NUMERIC_HEAD.size + 2 * count:
        _malformed(f"a numeric of {count} digits in {len(cell)} bytes")
    if sign in _SPECIAL:
        return _SPECIAL[sign]
    if sign & ~_NEGATIVE or scale > _SCALE_LIMIT:
        _malformed("a numeric of an unknown kind")
    digits = struct.unpack_from(f">{count}H", cell, _NUMERIC_HEAD.size)
    if max(digits, default=0) >= _BASE:
        _malformed("a numeric with a digit too large")
    point = weight + 1  # digits from here on are behind the decimal point
    whole = "".join(f"{digits[n] if n < count else 0:04d}" for n in range(point)).lstrip("0")
    text = ("-" if sign else "") + (whole or "0")
    if scale:
        behind = range(point, point + -(-scale // 4))
        fraction = "".join(f"{digits[n] if 0 <= n < count else 0:04d}" for n in behind)
        text += "." + fraction[:scale]
    return text.encode()
