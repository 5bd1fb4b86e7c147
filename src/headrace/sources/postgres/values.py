"""Text of cells to Arrow columns: the one function that the log and the chunk read both go through.

PostgreSQL renders a value by its type's output function under fixed session settings (`connection`), so
equal values have equal text on both paths; this module turns equal text into equal Arrow values.

The infinities of dates and timestamps are the ends of their integers, as in PostgreSQL itself; no other value is there.
"""

from __future__ import annotations

import binascii
import datetime as dt
import decimal
import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import UndecodableValue
from headrace.model.schema import TableSchema

__all__ = ["build_batch", "build_column", "render_text"]


def build_batch(schema: TableSchema, rows: Sequence[Sequence[bytes | None]]) -> list[pa.Array]:
    """Return the table's columns from rows of text cells.

    Args:
        schema: the table's shape; each row has one cell per column.
        rows: text as the server rendered it, None for null.

    Raises:
        UndecodableValue: when a value has no exact place in its column's type.
    """
    if not rows:
        return [pa.array([], column.type) for column in schema.columns]
    return [
        build_column(schema, place, cells) for place, cells in enumerate(zip(*rows, strict=True))
    ]


def build_column(schema: TableSchema, place: int, cells: Sequence[bytes | None]) -> pa.Array:
    """Return one column from its text cells.

    Raises:
        UndecodableValue: names table, column and length of the value, never the value.
    """
    column = schema.columns[place]
    try:
        return _convert(column.type, cells)
    except (pa.ArrowException, ValueError, OverflowError, ArithmeticError) as error:
        raise _undecodable(schema, place, cells) from error


def _convert(type_: pa.DataType, cells: Sequence[bytes | None]) -> pa.Array:
    if pa.types.is_binary(type_):
        return pa.array([None if c is None else _bytea(c) for c in cells], type_)
    text = pa.array(cells, pa.binary()).cast(pa.string())
    if pa.types.is_string(type_):
        return text
    if pa.types.is_boolean(type_):
        return _booleans(text)
    if pa.types.is_date(type_):
        return _dates(text)
    if pa.types.is_timestamp(type_):
        return _timestamps(text, type_)
    return text.cast(type_)


def _bytea(cell: bytes) -> bytes:
    if cell[:2] != b"\\x":
        raise ValueError("a bytea that is not in hex format")
    return binascii.unhexlify(cell[2:])


def _booleans(text: pa.Array) -> pa.Array:
    if not pc.all(pc.is_in(text, pa.array(["t", "f", None]))).as_py():
        raise ValueError("a boolean that is neither t nor f")
    return pc.equal(text, "t")


def _dates(text: pa.Array) -> pa.Array:
    try:
        return text.cast(pa.date32())
    except pa.ArrowInvalid:
        days = [None if cell is None else _days(cell) for cell in text.to_pylist()]
        return pa.array(days, pa.int32()).cast(pa.date32())


def _timestamps(text: pa.Array, type_: pa.DataType) -> pa.Array:
    try:
        return text.cast(type_)
    except pa.ArrowInvalid:
        micros = [None if cell is None else _micros(cell) for cell in text.to_pylist()]
        return pa.array(micros, pa.int64()).cast(type_)


# Years beyond 9999 and before 1, which the fast path does not read.
_DATE = re.compile(r"(\d{4,})-(\d\d)-(\d\d)( BC)?")
_TIMESTAMP = re.compile(r"(\d{4,}-\d\d-\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(?:\+00)?( BC)?")
_DAYS_PER_400_YEARS = 146_097

# The ends of their integers, where no finite value of PostgreSQL's is allowed.
_ENDLESS_DAYS = {"infinity": (1 << 31) - 1, "-infinity": -(1 << 31)}
_ENDLESS_MICROS = {"infinity": (1 << 63) - 1, "-infinity": -(1 << 63)}
_DAY_WORDS = {days: word for word, days in _ENDLESS_DAYS.items()}
_MICRO_WORDS = {us: word for word, us in _ENDLESS_MICROS.items()}


def _days(text: str) -> int:
    """Return days since 1970 in the proleptic Gregorian calendar."""
    if text in _ENDLESS_DAYS:
        return _ENDLESS_DAYS[text]
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError("a date without a day")
    year = int(match[1]) if match[4] is None else 1 - int(match[1])
    # Shift by whole 400-year cycles into the years that datetime knows.
    cycles, year = divmod(year - 1, 400)
    day = dt.date(year + 1, int(match[2]), int(match[3]))
    return day.toordinal() - 719_163 + cycles * _DAYS_PER_400_YEARS


def _micros(text: str) -> int:
    """Return microseconds since 1970."""
    if text in _ENDLESS_MICROS:
        return _ENDLESS_MICROS[text]
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError("a timestamp without a day")
    days = _days(match[1] + (match[6] or ""))
    seconds = (days * 24 + int(match[2])) * 3600 + int(match[3]) * 60 + int(match[4])
    micros = seconds * 1_000_000 + int((match[5] or "").ljust(6, "0"))
    if micros in _MICRO_WORDS:
        raise ValueError("a timestamp in the place of infinity")
    return micros


def _undecodable(
    schema: TableSchema, place: int, cells: Sequence[bytes | None]
) -> UndecodableValue:
    """Find the first cell that does not convert alone and name it without showing it."""
    column = schema.columns[place]
    length = 0
    for cell in cells:
        try:
            _convert(column.type, [cell])
        except (pa.ArrowException, ValueError, OverflowError, ArithmeticError):
            length = len(cell or b"")
            break
    return UndecodableValue(
        f"{schema.table}.{column.name}: a value of {length} bytes does not fit {column.type}, "
        f"which stands for {column.source_type}.",
        next_step="change the value at the source, or name the column under source.text_columns and dump "
        f"{schema.table} again, or exclude the table.",
    )


def render_text(column: pa.Array) -> list[str]:
    """Return values as text that the database reads back as the same values; no nulls.

    The other direction of `build_column`, for keys.
    """
    type_ = column.type
    if pa.types.is_string(type_):
        return [str(value) for value in column.to_pylist()]
    if pa.types.is_binary(type_):
        return ["\\x" + value.hex() for value in column.to_pylist()]
    if pa.types.is_boolean(type_):
        return ["t" if value else "f" for value in column.to_pylist()]
    if pa.types.is_decimal(type_):
        return [_plain(value) for value in column.to_pylist()]
    if pa.types.is_date(type_):
        return [_date_text(days) for days in column.cast(pa.int32()).to_pylist()]
    if pa.types.is_timestamp(type_):
        zone = "+00" if type_.tz else ""
        return [_timestamp_text(us, zone) for us in column.cast(pa.int64()).to_pylist()]
    if pa.types.is_floating(type_):
        return [_float_text(value) for value in column.to_numpy(zero_copy_only=False)]
    return [str(value) for value in column.to_pylist()]


def _plain(value: decimal.Decimal) -> str:
    return format(value, "f")


def _float_text(value: np.floating) -> str:
    """Return the shortest text that reads back as the same number, with an exponent where the server has one."""
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    text = np.format_float_scientific(value, trim="-", exp_digits=2)
    if -4 <= int(text.partition("e")[2]) < (6 if value.itemsize == 4 else 15):
        return np.format_float_positional(value, trim="-")
    return text


def _date_text(days: int) -> str:
    return _DAY_WORDS.get(days) or _finite_date_text(days)


def _finite_date_text(days: int) -> str:
    cycles, rest = divmod(days + 719_162, _DAYS_PER_400_YEARS)
    day = dt.date.fromordinal(rest + 1)
    year = day.year + 400 * cycles
    era = ""
    if year < 1:
        year, era = 1 - year, " BC"
    return f"{year:04d}-{day.month:02d}-{day.day:02d}{era}"


def _timestamp_text(us: int, zone: str) -> str:
    if us in _MICRO_WORDS:
        return _MICRO_WORDS[us]
    seconds, fraction = divmod(us, 1_000_000)
    days, second = divmod(seconds, 86_400)
    date, bc, _ = _finite_date_text(days).partition(" BC")
    tail = f".{fraction:06d}".rstrip("0") if fraction else ""
    clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    return f"{date} {clock}{tail}{zone}{bc}"
