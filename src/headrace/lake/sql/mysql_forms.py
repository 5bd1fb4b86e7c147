"""The form that each value has in a statement for MySQL and MariaDB, and back to Arrow; and what has none.

==================  ==========================================  =============================================
type                in the servers' own types                   ``as_text``
==================  ==========================================  =============================================
boolean             1 or 0                                      the same
integers            as they are                                 the same
floats              as they are; no NaN, no infinity, and       shortest text: ``1.5``, ``-0``, ``NaN``, ``inf``
                    MariaDB has no zero with a sign
decimals            as they are; text with all digits of a      the same
                    scale above 30
text, bytes         as they are                                 the same
dates               years 1 to 9999                             ISO 8601, ``infinity``, ``-infinity``
timestamps          likewise, those with a time zone in UTC     ``2026-03-01 12:00:00.000000``, ``+00:00`` behind
                                                                it with a time zone; both infinities likewise
==================  ==========================================  =============================================
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.lake.sql.sqlite_forms import arrow_of as arrow_of_texts
from headrace.lake.sql.sqlite_forms import cells_of as texts_of

__all__ = ["MOST_SCALE", "UnheldCell", "arrow_of", "literals", "moment_text"]

MOST_SCALE = 30
"""Digits behind the point that the servers' decimals have."""
_EPOCH = dt.date(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = (dt.date.min - _EPOCH).days, (dt.date.max - _EPOCH).days
_DAY_US = 86_400_000_000
_NULL = pa.scalar(b"NULL", pa.binary())
_QUOTE, _BYTES = pa.scalar(b"'", pa.binary()), pa.scalar(b"_binary'", pa.binary())


class UnheldCell(Exception):
    """A column of a staging table has a value that no type of the server's holds.

    Attributes:
        column: name of the column.
        what: what the value is, without telling it.
    """

    def __init__(self, column: str, what: str) -> None:
        super().__init__(f"{column}: {what}")
        self.column, self.what = column, what


def literals(name: str, column: pa.Array, *, as_text: bool, signs_zeros: bool) -> pa.Array:
    """Return the cells of a column as literals, binary.

    Args:
        name: of the column.
        column: its cells.
        as_text: whether floats, dates and times are text.
        signs_zeros: whether the server's own floats have a zero with a sign.

    Raises:
        UnheldCell: one of them has no form.
    """
    type_ = column.type
    if pa.types.is_boolean(type_):
        cells = column.cast(pa.int8()).cast(pa.string()).cast(pa.binary())
    elif pa.types.is_binary(type_):
        cells = _quoted(column, _BYTES)
    elif pa.types.is_string(type_):
        cells = _quoted(column.cast(pa.binary()), _QUOTE)
    elif pa.types.is_decimal(type_):
        # As text, which is taken digit by digit; with an exponent a plain literal would be a float.
        plain = type_.scale <= MOST_SCALE
        texts = column.cast(pa.string()) if plain else pa.array(texts_of(column), pa.string())
        cells = _quoted(texts.cast(pa.binary()), _QUOTE)
    elif pa.types.is_floating(type_):
        if as_text:
            texts = pa.array([_float_text(cell) for cell in column.to_pylist()], pa.string())
        else:
            _check_floats(name, column, signs_zeros)
            # All digits of the double that a single is: the shortest text of a single is rounded twice on its way.
            texts = column.cast(pa.float64()).cast(pa.string())
        cells = _quoted(texts.cast(pa.binary()), _QUOTE)
    elif pa.types.is_date32(type_) or pa.types.is_timestamp(type_):
        if as_text:
            texts = pa.array(texts_of(column), pa.string())
        else:
            _check_days(name, column)
            plain_type = pa.timestamp("us") if pa.types.is_timestamp(type_) else type_
            texts = column.cast(pa.int64() if type_ != pa.date32() else pa.int32())
            texts = texts.cast(plain_type).cast(pa.string())
        cells = _quoted(texts.cast(pa.binary()), _QUOTE)
    else:
        cells = column.cast(pa.string()).cast(pa.binary())
    return pc.if_else(column.is_valid(), cells, _NULL)


def arrow_of(cells: Sequence[Any], type_: pa.DataType, *, as_text: bool) -> pa.Array:
    """Return the column of which these are the cells, as the driver gives them."""
    if pa.types.is_boolean(type_):
        return pa.array([None if cell is None else bool(cell) for cell in cells], type_)
    if pa.types.is_decimal(type_):
        return pa.array([None if cell is None else Decimal(cell) for cell in cells], type_)
    if pa.types.is_floating(type_):
        return pa.array([None if cell is None else float(cell) for cell in cells], type_)
    if as_text and (pa.types.is_date32(type_) or pa.types.is_timestamp(type_)):
        return arrow_of_texts(cells, type_)
    return pa.array(cells, type_)


def moment_text(at: dt.datetime, *, as_text: bool) -> str:
    """Return the form of a moment in UTC."""
    return at.strftime("%Y-%m-%d %H:%M:%S.%f") + ("+00:00" if as_text else "")


def _quoted(cells: pa.Array, begin: pa.Scalar) -> pa.Array:
    doubled = pc.replace_substring(cells, b"'", b"''")
    return pc.binary_join_element_wise(begin, doubled, _QUOTE, b"")


def _float_text(value: float | None) -> str | None:
    if value is None:
        return None
    if math.isnan(value):
        return "NaN"
    # As the server writes whole numbers, of which wider columns are made.
    return repr(value).removesuffix(".0")


def _check_floats(name: str, column: pa.Array, signs_zeros: bool) -> None:
    values = np.asarray(column.fill_null(0.0))
    if np.isnan(values).any():
        raise UnheldCell(name, "a NaN")
    if np.isinf(values).any():
        raise UnheldCell(name, "an infinite number")
    if not signs_zeros and (np.signbit(values) & (values == 0)).any():
        raise UnheldCell(name, "a zero with a sign")


def _check_days(name: str, column: pa.Array) -> None:
    is_day = pa.types.is_date32(column.type)
    numbers = np.asarray(column.cast(pa.int32() if is_day else pa.int64()).fill_null(0))
    ends = np.iinfo(numbers.dtype)
    what = "date" if is_day else "time"
    if np.isin(numbers, (ends.min, ends.max)).any():
        raise UnheldCell(name, f"an infinite {what}")
    unit = 1 if is_day else _DAY_US
    if (numbers < _FIRST_DAY * unit).any() or (numbers >= (_LAST_DAY + 1) * unit).any():
        raise UnheldCell(name, f"a {what} outside of the years 1 to 9999")
