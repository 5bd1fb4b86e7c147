"""Binary COPY of rows: what is asked of the server for each column, and its bytes as Arrow columns.

``selected_columns`` and ``decode_copy`` are two sides of one agreement. A column is sent in its type's binary form
where that says exactly what the type's text says: numbers, booleans, dates, timestamps, bytes, uuid, and the
types whose binary form is their text. Every other column is rendered by the server, by the same output
function that the log's text comes from. So a cell is the same Arrow value whichever way it came.

Format: https://www.postgresql.org/docs/current/sql-copy.html, section Binary Format. Lengths come from the wire and
are checked before anything is read; a field is handed on as a slice, so nothing can be read past it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import ProtocolError
from headrace.model.change import table_arrow_schema
from headrace.model.schema import Column, TableSchema
from headrace.sources.postgres.connection import quote
from headrace.sources.postgres.decoder import engine
from headrace.sources.postgres.values import build_column

__all__ = ["HEADER", "TRAILER", "decode_copy", "rendered_sql", "selected_columns"]

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
"""What precedes the rows: signature, no flags, no extension."""
TRAILER = b"\xff\xff"
"""What follows the rows."""

_SIGNATURE = HEADER[:11]
# Flags that a reader must know to go on; none is in use.
_CRITICAL_FLAGS = 0xFFFF_0000

Cells: TypeAlias = Sequence[bytes | None]

# PostgreSQL counts from 2000-01-01.
_EPOCH_DAYS = 10_957
_EPOCH_MICROS = _EPOCH_DAYS * 86_400_000_000
_NOWHERE = [b"infinity"]

# Types whose binary form is the UTF-8 of their text.
_TEXT = re.compile(r"text|name|json|bpchar|character(\(\d+\))?|character varying(\(\d+\))?")
_NUMERIC = re.compile(r"numeric(\(.*\))?")

_NUMERIC_HEAD = struct.Struct(">HhHH")
_NEGATIVE = 0x4000
_SPECIAL = {0xC000: b"NaN", 0xD000: b"Infinity", 0xF000: b"-Infinity"}
_SCALE_LIMIT = 0x3FFF
_BASE = 10_000


def selected_columns(schema: TableSchema) -> list[tuple[str, str]]:
    """Return per column its quoted name and the expression to select for `decode_copy`."""
    return [(quote(column.name), _expression(column)) for column in schema.columns]


def _expression(column: Column) -> str:
    name = quote(column.name)
    sent_as_it_is = not pa.types.is_string(column.type) or _form(column) is not _rendered
    return name if sent_as_it_is else rendered_sql(name)


def rendered_sql(name: str) -> str:
    """Return the SQL of a value's text as the log carries it, null for null.

    A cast to text trims char(n) and adds a mask to inet; concat calls the output function. A composite value is
    null only as a whole, which IS NOT NULL does not say.
    """
    return f"CASE WHEN {name} IS DISTINCT FROM NULL THEN concat({name}) END"


def decode_copy(data: bytes | bytearray | memoryview, schema: TableSchema) -> pa.RecordBatch:
    """Return the rows of one binary COPY of the `selected_columns` of a table.

    Args:
        data: everything from header to trailer.
        schema: the table's shape as the select saw it.

    Raises:
        ProtocolError: the bytes are no such COPY.
        UndecodableValue: a value has no exact place in its column's type.
    """
    # What C leaves is rare or broken: the decoder in Python says which.
    arrays = _native_columns(data, schema) if engine() == "native" else None
    if arrays is None:
        arrays = [
            _form(column)(schema, place, cells)
            for place, (column, cells) in enumerate(
                zip(schema.columns, _split(bytes(data), schema), strict=True)
            )
        ]
    return pa.RecordBatch.from_arrays(arrays, schema=table_arrow_schema(schema))


def _native_columns(
    data: bytes | bytearray | memoryview, schema: TableSchema
) -> list[pa.Array] | None:
    """Return the columns as the decoder in C reads them, None when it does not."""
    from headrace.sources.postgres._native import FORMS, copy_columns

    if bytes(data[: len(HEADER)]) != HEADER:
        return None
    forms = [FORMS[_native_form(column)] for column in schema.columns]
    return copy_columns(data, len(HEADER), schema, forms)


def _native_form(column: Column) -> str:
    """Return how a column comes, where its Arrow type does not say it."""
    names: dict[object, str] = {_numeric: "numeric", _uuid: "uuid", _jsonb: "jsonb"}
    return names.get(_form(column), "plain") if pa.types.is_string(column.type) else "plain"


# -- framing ---------------------------------------------------------------------------------------


def _split(data: bytes, schema: TableSchema) -> list[list[bytes | None]]:
    """Return the cells by column."""
    at, end, width = _rows_start(data), len(data), len(schema.columns)
    columns: list[list[bytes | None]] = [[] for _ in schema.columns]
    appends = [column.append for column in columns]
    number = int.from_bytes
    while True:
        if end - at < 2:
            _malformed("it ends without a trailer")
        count = number(data[at : at + 2], "big", signed=True)
        at += 2
        if count == -1:
            break
        if count != width:
            _malformed(f"a row of {count} fields for {width} columns")
        for append in appends:
            if end - at < 4:
                _malformed("it ends inside a row")
            size = number(data[at : at + 4], "big", signed=True)
            at += 4
            if size == -1:
                append(None)
                continue
            if size < 0 or size > end - at:
                _malformed(f"a field of {size} bytes where {end - at} are left")
            append(data[at : at + size])
            at += size
    if at != end:
        _malformed(f"{end - at} bytes behind its trailer")
    return columns


def _rows_start(data: bytes) -> int:
    """Return where the first row begins."""
    if not data.startswith(_SIGNATURE) or len(data) < len(HEADER):
        _malformed("it has no header")
    flags, extension = struct.unpack_from(">II", data, len(_SIGNATURE))
    if flags & _CRITICAL_FLAGS:
        _malformed(f"unknown flags {flags:#x}")
    if extension > len(data) - len(HEADER):
        _malformed("it ends inside its header")
    return len(HEADER) + int(extension)


def _malformed(what: str) -> NoReturn:
    raise ProtocolError(
        f"A binary COPY is malformed: {what}.",
        next_step="report it with the server's version; the chunk is not used.",
    )


# -- columns ---------------------------------------------------------------------------------------


def _form(column: Column) -> Callable[[TableSchema, int, Cells], pa.Array]:
    """Return the decoder of a column: of its Arrow type, and for text of the source's own type."""
    type_ = column.type
    if pa.types.is_string(type_):
        if _TEXT.fullmatch(column.source_type):
            return build_column
        if _NUMERIC.fullmatch(column.source_type):
            return _numeric
        return {"uuid": _uuid, "jsonb": _jsonb}.get(column.source_type, _rendered)
    if pa.types.is_decimal(type_):
        return _numeric
    if pa.types.is_binary(type_):
        return _bytes
    if pa.types.is_boolean(type_):
        return _booleans
    if pa.types.is_date(type_):
        return _dates
    if pa.types.is_timestamp(type_):
        return _timestamps
    return _numbers


def _rendered(schema: TableSchema, place: int, cells: Cells) -> pa.Array:
    """Text that the server made of a type with another binary form."""
    return build_column(schema, place, cells)


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


def _bytes(schema: TableSchema, place: int, cells: Cells) -> pa.Array:
    return pa.array(cells, schema.columns[place].type)


def _dates(schema: TableSchema, place: int, cells: Cells) -> pa.Array:
    values, nulls = _fixed(cells, ">i4")
    limits = np.iinfo(np.int32)
    if values.size and (values.max() > limits.max - _EPOCH_DAYS or values.min() == limits.min):
        # Infinity, for which the log's path has the words: this raises.
        return build_column(schema, place, _NOWHERE)
    return pa.array(values + np.int32(_EPOCH_DAYS), pa.int32(), mask=nulls).cast(pa.date32())


def _timestamps(schema: TableSchema, place: int, cells: Cells) -> pa.Array:
    values, nulls = _fixed(cells, ">i8")
    limits = np.iinfo(np.int64)
    if values.size and (values.max() > limits.max - _EPOCH_MICROS or values.min() == limits.min):
        return build_column(schema, place, _NOWHERE)
    micros = pa.array(values + np.int64(_EPOCH_MICROS), pa.int64(), mask=nulls)
    return micros.cast(schema.columns[place].type)


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
