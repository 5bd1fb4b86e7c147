"""Dates and times as the log has them to Arrow columns.

A date that is no day (``0000-00-00``, the 31st of February) has no place in a column of dates: it is refused, or null,
as the configuration wants.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.sources.mysql.settings import ZeroDates
from headrace.sources.mysql.types import ColumnType

__all__ = ["dates", "datetimes", "days_of", "times", "timestamps"]

_Rows = npt.NDArray[np.uint8]
_Ints = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]

_SECOND = 1_000_000


def dates(type_: ColumnType, rows: _Rows, valid: _Flags, zero_dates: ZeroDates) -> pa.Array:
    """Return days: three bytes little-endian, 5 bits day, 4 bits month, the rest year."""
    packed = _number(rows[:, ::-1])
    days, good = days_of(packed >> 9, packed >> 5 & 15, packed & 31)
    return _allowed(days.astype(np.int32), good, valid, type_, zero_dates)


def datetimes(type_: ColumnType, rows: _Rows, valid: _Flags, zero_dates: ZeroDates) -> pa.Array:
    """Return microseconds: 40 bits big-endian from the year down, then the fraction."""
    packed = _number(rows[:, :5]) - (1 << 39)
    date, clock = packed >> 17, packed & (1 << 17) - 1
    months = date >> 5
    days, good = days_of(months // 13, months % 13, date & 31)
    seconds = days * 86_400 + (clock >> 12) * 3600 + (clock >> 6 & 63) * 60 + (clock & 63)
    micros = seconds * _SECOND + _fraction(rows[:, 5:])
    return _allowed(micros, good, valid, type_, zero_dates)


def timestamps(type_: ColumnType, rows: _Rows, valid: _Flags, zero_dates: ZeroDates) -> pa.Array:
    """Return microseconds: seconds since 1970 big-endian, then the fraction; all zero stands for no day."""
    seconds, fraction = _number(rows[:, :4]), _fraction(rows[:, 4:])
    micros = seconds * _SECOND + fraction
    return _allowed(micros, micros != 0, valid, type_, zero_dates)


def times(type_: ColumnType, rows: _Rows, valid: _Flags, zero_dates: ZeroDates) -> pa.Array:
    """Return text: 24 bits big-endian with an offset, then the fraction, both of one signed number."""
    del zero_dates
    size = rows.shape[1] - 3
    # In 24 bits and the bytes of the fraction together the number is a plain signed one.
    packed = _number(rows) - (1 << 23 + 8 * size)
    # Fractions of one and two digits are hundredths, those of three and four ten-thousandths.
    unit = (1, 10_000, 100, 1)[size]
    size_bits = 8 * size
    magnitude = np.abs(packed)
    clock = magnitude >> size_bits
    micros = (magnitude & (1 << size_bits) - 1) * unit
    texts = [
        _clock_text(*parts, type_.scale)
        for parts in zip(
            (packed < 0).tolist(),
            (clock >> 12).tolist(),
            (clock >> 6 & 63).tolist(),
            (clock & 63).tolist(),
            micros.tolist(),
            strict=True,
        )
    ]
    dense = pa.array(texts, pa.string())
    return dense if valid.all() else dense.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


def _clock_text(
    negative: bool, hours: int, minutes: int, seconds: int, micros: int, scale: int
) -> str:
    text = f"{'-' * negative}{hours:02d}:{minutes:02d}:{seconds:02d}"
    return f"{text}.{micros:06d}"[: len(text) + 1 + scale] if scale else text


def days_of(year: _Ints, month: _Ints, day: _Ints) -> tuple[_Ints, _Flags]:
    """Return days since 1970, and where year, month and day are a day at all."""
    months = (year - 1970) * 12 + month - 1
    first = months.astype("datetime64[M]")
    days = first.astype("datetime64[D]").astype(np.int64) + day - 1
    same = days.astype("datetime64[D]").astype("datetime64[M]") == first
    return days, same & (month >= 1) & (month <= 12) & (day >= 1) & (year >= 1)


def _allowed(
    values: npt.NDArray[Any], good: _Flags, valid: _Flags, type_: ColumnType, zero_dates: ZeroDates
) -> pa.Array:
    if not good.all():
        if zero_dates == "refuse":
            raise ValueError("a date that is no day")
        valid = valid.copy()
        valid[valid] = good
        values = values[good]
    whole = np.zeros(len(valid), values.dtype)
    whole[valid] = values
    return pa.array(whole, mask=~valid).cast(type_.arrow)


def _number(rows: _Rows) -> _Ints:
    """Return numbers of up to seven bytes, the most significant first."""
    wide = np.zeros((len(rows), 8), np.uint8)
    wide[:, : rows.shape[1]] = rows[:, ::-1]
    found: _Ints = wide.view(np.int64).ravel()
    return found


def _fraction(rows: _Rows) -> _Ints:
    """Return microseconds: bytes of hundredths, of ten-thousandths, or of microseconds."""
    return _number(rows) * (1, 10_000, 100, 1)[rows.shape[1]]
