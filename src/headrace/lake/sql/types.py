"""Neutral column types in a warehouse's terms. Every value fits exactly, or is text: see `headrace.model.schema`."""

from __future__ import annotations

import pyarrow as pa

from headrace.lake.sql.dialect import Dialect

__all__ = ["column_type", "staged_type"]

_TYPES: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.string(): "text",
    pa.binary(): "bytea",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp",
    pa.timestamp("us", tz="UTC"): "timestamptz",
}


def column_type(type_: pa.DataType) -> str:
    """Return the type of a target's column, in PostgreSQL's words."""
    if pa.types.is_decimal128(type_):
        return f"numeric({type_.precision}, {type_.scale})"
    return _TYPES[type_]


def staged_type(dialect: Dialect, type_: pa.DataType) -> str:
    """Return the type of the same column while its values are staged."""
    if dialect.decimals_as_text and pa.types.is_decimal128(type_):
        return "text"
    return column_type(type_)
