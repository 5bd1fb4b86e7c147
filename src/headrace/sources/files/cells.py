"""Cells of lines to Arrow columns; the other direction of `headrace.wire.plain`.

What JSON has no exact word for is text: decimals and large integers in digits, bytes in base64, dates and times by
ISO 8601, NaN and the infinities by name. A cell that does not say its value exactly is refused, not rounded.
"""

from __future__ import annotations

import base64
import binascii
import decimal
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from headrace.errors import UndecodableValue
from headrace.model.schema import TableSchema

__all__ = ["column_of"]

_FINER = re.compile(r"[.,]\d{6}\d*[1-9]")
"""Digits of a second behind the sixth, which Python leaves out without a word."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def column_of(schema: TableSchema, place: int, cells: Sequence[Any]) -> pa.Array:
    """Return a column from cells as JSON has them; None for null.

    Raises:
        UndecodableValue: names table and column, never the value.
    """
    column = schema.columns[place]
    read = _reader(column.type)
    try:
        return pa.array([None if cell is None else read(cell) for cell in cells], column.type)
    except (ValueError, TypeError, OverflowError, ArithmeticError, pa.ArrowException) as error:
        raise UndecodableValue(
            f"{schema.table}.{column.name}: a value in the feed is no {column.type}.",
            next_step="correct the feed, or its description of the table; docs/files.md has the form of each type.",
        ) from error


def _reader(type_: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_boolean(type_):
        return _boolean
    if pa.types.is_integer(type_):
        return _integer
    if pa.types.is_floating(type_):
        return _number
    if pa.types.is_decimal(type_):
        return _decimal
    if pa.types.is_binary(type_):
        return _bytes
    if pa.types.is_date(type_):
        return _day
    if pa.types.is_timestamp(type_):
        return _instant if type_.tz else _moment
    return _text


def _wrong() -> ValueError:
    return ValueError("another kind of cell")


def _boolean(cell: Any) -> bool:
    if not isinstance(cell, bool):
        raise _wrong()
    return cell


def _integer(cell: Any) -> int:
    if isinstance(cell, bool) or not isinstance(cell, int | str):
        raise _wrong()
    return int(cell)


def _number(cell: Any) -> float:
    if isinstance(cell, bool) or (
        isinstance(cell, str) and cell.lstrip("-") not in ("NaN", "Infinity")
    ):
        raise _wrong()
    return float(cell)


def _decimal(cell: Any) -> decimal.Decimal:
    # A number of JSON would have gone through a float on its way.
    if isinstance(cell, bool) or not isinstance(cell, int | str):
        raise _wrong()
    return decimal.Decimal(cell)


def _bytes(cell: Any) -> bytes:
    try:
        return base64.b64decode(_text(cell), validate=True)
    except binascii.Error as error:
        raise _wrong() from error


def _day(cell: Any) -> date:
    return date.fromisoformat(_text(cell))


def _moment(cell: Any) -> int:
    moment = _parsed(cell)
    if moment.tzinfo is not None:
        raise _wrong()
    return _micros(moment.replace(tzinfo=UTC))


def _instant(cell: Any) -> int:
    moment = _parsed(cell)
    if moment.tzinfo is None:
        raise _wrong()
    return _micros(moment)


def _parsed(cell: Any) -> datetime:
    text = _text(cell)
    if _FINER.search(text):
        raise _wrong()
    return datetime.fromisoformat(text)


def _micros(moment: datetime) -> int:
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _text(cell: Any) -> str:
    if not isinstance(cell, str):
        raise _wrong()
    return cell
