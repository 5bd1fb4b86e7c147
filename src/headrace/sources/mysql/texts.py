"""Cells of a select to Arrow columns: the values that the log's columns have, from the text of the server.

The session is one of `headrace.sources.mysql.connection`, and a column is selected by `selected`.
"""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from headrace.sources.mysql.charsets import BINARY
from headrace.sources.mysql.settings import ZeroDates
from headrace.sources.mysql.types import ColumnType, Kind
from headrace.sources.mysql.values import text_of

__all__ = ["column_of_texts", "selected"]

_DATES = frozenset({Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP})


def selected(type_: ColumnType, column: str) -> str:
    """Return the expression by which a column is selected, so that its text says all of its value.

    Args:
        type_: of the column.
        column: its quoted name.
    """
    if type_.kind is Kind.FLOAT or type_.rounded:
        # Its own text has six digits, or those behind the point that it was declared with; this one has all of them.
        # That of any other double has all as it is, and MySQL would shorten this one, of small numbers above all.
        return f"{column} * 1e0"
    if type_.kind is Kind.BIT:
        return f"{column} + 0"
    if type_.kind is Kind.TIME:
        # Of which a prepared select would give the parts.
        return f"CAST({column} AS CHAR)"
    return column


def column_of_texts(type_: ColumnType, raw: pa.Array, zero_dates: ZeroDates) -> pa.Array:
    """Return a column.

    Args:
        type_: of the column.
        raw: bytes as the server rendered them.
        zero_dates: what becomes of a date that is no day.

    Raises:
        ValueError: a value has no exact place in the type.
    """
    if type_.kind in (Kind.GEOMETRY, Kind.VECTOR) or (type_.charset == BINARY and not type_.native):
        return raw
    text = text_of(raw)
    form = _form(type_)
    if form is not None:
        plain = pc.match_substring_regex(text, form)
        if not pc.all(plain, skip_nulls=True).as_py() and plain.null_count < len(plain):
            if type_.kind not in _DATES or zero_dates == "refuse":
                raise ValueError("text that is not of its column's type")
            text = pc.if_else(plain, text, pa.scalar(None, pa.string()))
    if type_.kind in _DATES:
        return _dates(text, type_.arrow, zero_dates)
    if type_.kind is Kind.DECIMAL and pa.types.is_string(type_.arrow):
        # With ZEROFILL the server writes zeros in front, which are no part of the value.
        return pc.replace_substring_regex(text, r"^0+(\d)", r"\1")
    if type_.kind is Kind.BIT and type_.length == 1:
        return pc.equal(text, "1")
    if type_.kind is Kind.FLOAT:
        return text.cast(pa.float64()).cast(pa.float32(), safe=False)
    if pa.types.is_string(type_.arrow):
        return text
    found = text.cast(type_.arrow)
    if type_.kind is Kind.LONGLONG and type_.unsigned:
        beyond = pc.greater_equal(found, pa.scalar(Decimal(2**64), pa.decimal128(20, 0)))
        if pc.any(beyond).as_py():
            raise ValueError("a number that is not of its column's type")
    return found


def _form(type_: ColumnType) -> str | None:
    """Return the pattern of a type's text where a cast would take more than the server ever says."""
    if type_.native:
        return None
    if type_.kind is Kind.DATE:
        return r"^\d{4}-\d\d-\d\d$"
    if type_.kind in _DATES:
        return r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?$"
    if type_.kind is Kind.DECIMAL:
        fraction = rf"\.\d{{{type_.scale}}}" if type_.scale else ""
        return rf"^(-(0|[1-9]\d*)|\d+){fraction}$"
    if pa.types.is_integer(type_.arrow) or type_.kind is Kind.LONGLONG:
        return r"^\d+$" if type_.unsigned and type_.kind is Kind.LONGLONG else r"^(-[1-9]\d*|\d+)$"
    return None


def _dates(text: pa.Array, type_: pa.DataType, zero_dates: ZeroDates) -> pa.Array:
    if pa.types.is_timestamp(type_) and type_.tz:
        return _dates(text, pa.timestamp("us"), zero_dates).cast(type_)
    # The year 0 is no year of the server's own calendar either.
    if zero_dates == "refuse":
        if pc.any(pc.starts_with(text, "0000")).as_py():
            raise ValueError("a date that is no day")
        return text.cast(type_)
    cells = [_date_or_null(cell, type_) for cell in text]
    return pa.concat_arrays(cells) if cells else pa.array([], type_)


def _date_or_null(cell: pa.Scalar, type_: pa.DataType) -> pa.Array:
    one = pa.array([cell.as_py()], pa.string())
    try:
        return _dates(one, type_, "refuse")
    except (ValueError, pa.ArrowException):
        return pa.nulls(1, type_)
