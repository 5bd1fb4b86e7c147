"""What a data file's log entry says about its rows, so that readers can pass the file over.

Per column the count of nulls, and for types that readers compare also bounds. A column whose bounds the log's text
cannot give exactly enough has none: readers then look into the file.

Source: Delta protocol, "Per-file Statistics".
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["statistics_of"]

_TEXT_CHARS = 32
"""Longer text is cut; a bound stays a bound."""
_LAST_CHAR = "\U0010ffff"
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - the log's text has no zone, or says UTC itself
_YEARS_US = (-62_135_596_800_000_000, 253_402_300_799_999_000)
"""Instants whose year the log's text can name."""
_YEARS_DAYS = (-719_162, 2_932_896)


def statistics_of(rows: pa.Table) -> str:
    """Return the ``stats`` of an ``add`` action."""
    low: dict[str, str] = {}
    high: dict[str, str] = {}
    nulls: dict[str, str] = {}
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        nulls[name] = str(column.null_count)
        if bounds := _bounds(column):
            low[name], high[name] = bounds
    found = {
        "numRecords": str(rows.num_rows),
        "minValues": _object(low),
        "maxValues": _object(high),
        "nullCount": _object(nulls),
    }
    return _object(found)


def _object(members: Mapping[str, str]) -> str:
    """Return a JSON object of members that are JSON already: decimals have more digits than Python's floats."""
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in members.items()) + "}"


def _bounds(column: pa.ChunkedArray) -> tuple[str, str] | None:
    """Return the least and the greatest value as the log writes them; None when it cannot."""
    kind = column.type
    if column.null_count == len(column) or pa.types.is_binary(kind) or pa.types.is_boolean(kind):
        return None
    if pa.types.is_floating(kind) and not pc.all(pc.is_finite(column)).as_py():
        return None
    if pa.types.is_date32(kind):
        return _dates(column)
    if pa.types.is_timestamp(kind):
        return _instants(column)
    found = pc.min_max(column).as_py()
    low, high = found["min"], found["max"]
    if pa.types.is_string(kind):
        return json.dumps(low[:_TEXT_CHARS]), json.dumps(_cut(high))
    if pa.types.is_decimal(kind):
        return format(low, "f"), format(high, "f")
    if pa.types.is_floating(kind):
        # Both zeros are equal to readers, and either may be the bound.
        low, high = low or -0.0, high or 0.0
    return json.dumps(low), json.dumps(high)


def _cut(high: str) -> str:
    """Return the greatest text, or where that is long a shorter one above it."""
    rest = high[_TEXT_CHARS:]
    if not rest:
        return high
    # One more than stand there already: those would reach as far as the text itself.
    standing = len(rest) - len(rest.lstrip(_LAST_CHAR))
    return high[:_TEXT_CHARS] + _LAST_CHAR * (standing + 1)


def _dates(column: pa.ChunkedArray) -> tuple[str, str] | None:
    low, high = _integers(column, pa.int32())
    if low < _YEARS_DAYS[0] or high > _YEARS_DAYS[1]:
        return None
    return _date(low), _date(high)


def _date(days: int) -> str:
    return json.dumps((_EPOCH + dt.timedelta(days=days)).date().isoformat())


def _instants(column: pa.ChunkedArray) -> tuple[str, str] | None:
    """Return bounds in milliseconds, the unit that readers expect, rounded outwards."""
    low, high = _integers(column, pa.int64())
    if low < _YEARS_US[0] or high > _YEARS_US[1]:
        return None
    zone = "Z" if column.type.tz else ""
    return _instant(low // 1_000, zone), _instant(-(-high // 1_000), zone)


def _instant(milliseconds: int, zone: str) -> str:
    moment = _EPOCH + dt.timedelta(milliseconds=milliseconds)
    return json.dumps(moment.isoformat(timespec="milliseconds") + zone)


def _integers(column: pa.ChunkedArray, as_type: pa.DataType) -> tuple[int, int]:
    found = pc.min_max(column.cast(as_type)).as_py()
    return found["min"], found["max"]
