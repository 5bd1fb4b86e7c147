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
from typing import NoReturn

import pyarrow as pa

from headrace.errors import ProtocolError
from headrace.model.change import table_arrow_schema
from headrace.model.schema import Column, TableSchema
from headrace.sources.postgres.binary import binary_column
from headrace.sources.postgres.connection import quote
from headrace.sources.postgres.decoder import engine
from headrace.sources.postgres.types import Form

__all__ = ["HEADER", "TRAILER", "decode_copy", "rendered_sql", "selected_columns"]

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
"""What precedes the rows: signature, no flags, no extension."""
TRAILER = b"\xff\xff"
"""What follows the rows."""

_SIGNATURE = HEADER[:11]
# Flags that a reader must know to go on; none is in use.
_CRITICAL_FLAGS = 0xFFFF_0000

# Source types of columns that are text here, and how their binary form is read.
_TEXT_FORMS = (
    (
        re.compile(r"text|name|json|bpchar|character(\(\d+\))?|character varying(\(\d+\))?"),
        Form.PLAIN,
    ),
    (re.compile(r"numeric(\(.*\))?"), Form.NUMERIC),
    (re.compile("uuid"), Form.UUID),
    (re.compile("jsonb"), Form.JSONB),
    (re.compile("oid|xid|cid"), Form.OID),
    (re.compile(r"time(\(\d\))? without time zone"), Form.TIME),
)


def selected_columns(schema: TableSchema) -> list[tuple[str, str]]:
    """Return per column its quoted name and the expression to select for `decode_copy`."""
    return [(quote(column.name), _expression(column)) for column in schema.columns]


def _expression(column: Column) -> str:
    name = quote(column.name)
    return rendered_sql(name) if _form(column) is None else name


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
            binary_column(schema, place, _form(column) or Form.PLAIN, cells)
            for place, (column, cells) in enumerate(
                zip(schema.columns, _split(bytes(data), schema), strict=True)
            )
        ]
    return pa.RecordBatch.from_arrays(arrays, schema=table_arrow_schema(schema))


def _native_columns(
    data: bytes | bytearray | memoryview, schema: TableSchema
) -> list[pa.Array] | None:
    """Return the columns as the decoder in C reads them, None when it does not."""
    from headrace.sources.postgres._native import copy_columns

    if bytes(data[: len(HEADER)]) != HEADER:
        return None
    forms = [_form(column) or Form.PLAIN for column in schema.columns]
    return copy_columns(data, len(HEADER), schema, forms)


def _form(column: Column) -> Form | None:
    """Return how a column's binary form is read; None: the server is to send its text."""
    if pa.types.is_decimal(column.type):
        return Form.NUMERIC
    if not pa.types.is_string(column.type):
        return Form.PLAIN
    for names, form in _TEXT_FORMS:
        if names.fullmatch(column.source_type):
            return form
    return None


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
