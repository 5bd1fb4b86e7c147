"""Partitions: which rows of a stream are whose.

A row belongs to the partition of its own key, whatever happened to it. So the partitions of one ``count`` are disjoint
and together everything, and all changes of a key go to the same one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.rowkey import encode_rows
from headrace.model.schema import TableSchema, render_type
from headrace.wire.filters.checksums import checksums
from headrace.wire.filters.conditions import bind_condition
from headrace.wire.filters.faults import bad_filter
from headrace.wire.filters.tree import And, Comparison, IsNull, Literal, Name, Node, Or, Value
from headrace.wire.filters.values import Bools, Rows

__all__ = ["Counted", "Partition", "Range", "Ranged", "bind_partition"]

_MOST_DIGITS = 38
Bound: TypeAlias = int | float | str | None


@dataclass(frozen=True, slots=True)
class Counted:
    """Some of ``count`` partitions.

    Attributes:
        by: ``mod`` or ``hash``.
        count: of all partitions.
        take: numbers of those that are wanted, ascending, from 0.
    """

    by: str
    count: int
    take: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the part of the filter."""
        return {"by": self.by, "count": self.count, "take": list(self.take)}


@dataclass(frozen=True, slots=True)
class Range:
    """Keys from ``start`` on and below ``below``; None: no end on this side."""

    start: Bound
    below: Bound

    def to_json(self) -> dict[str, Any]:
        """Return the part of the filter."""
        ends = {"from": self.start, "below": self.below}
        return {name: end for name, end in ends.items() if end is not None}


@dataclass(frozen=True, slots=True)
class Ranged:
    """Some ranges of the first key column."""

    ranges: tuple[Range, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the part of the filter."""
        return {"by": "range", "ranges": [one.to_json() for one in self.ranges]}


Partition: TypeAlias = Counted | Ranged


def bind_partition(partition: Partition, schema: TableSchema) -> Callable[[Rows], Bools]:
    """Return what tells the rows of the partition from others.

    Args:
        partition: the partition.
        schema: version of the table.

    Raises:
        BadFilter: a range's end is no value of the key's type; names table and column.
    """
    if isinstance(partition, Ranged):
        return _ranged(partition, schema)
    # The columns of a table without a key are its key.
    names = schema.key or tuple(schema.names)
    wanted = np.zeros(partition.count, bool)
    wanted[list(partition.take)] = True
    is_number = len(schema.key) == 1 and pa.types.is_integer(schema.column(names[0]).type)
    if partition.by == "mod" and is_number:
        return lambda rows: wanted[_numbers(rows, names[0]) % partition.count]
    return lambda rows: wanted[_hashes(rows, names) % np.uint32(partition.count)]


def _numbers(rows: Rows, name: str) -> Any:
    return pc.fill_null(pc.cast(rows.batch.column(name), pa.int64()), 0).to_numpy()


def _hashes(rows: Rows, names: tuple[str, ...]) -> Any:
    return checksums(encode_rows([rows.batch.column(name) for name in names]))


def _ranged(partition: Ranged, schema: TableSchema) -> Callable[[Rows], Bools]:
    name = (schema.key or tuple(schema.names))[0]
    parts = [_range_node(name, one, schema) for one in partition.ranges]
    return bind_condition(Or(tuple(parts), 1), schema, "partition").may_hold


def _range_node(name: str, one: Range, schema: TableSchema) -> Node:
    """Return the range as a condition; null stands below all values."""
    key = Name(name, 1)
    above = [] if one.start is None else [Comparison(">=", key, _end(one.start, name, schema), 1)]
    if one.below is None:
        return above[0] if above else Literal(True, 1)
    below = Comparison("<", key, _end(one.below, name, schema), 1)
    return And((*above, below), 1) if above else Or((IsNull(key, 1), below), 1)


def _end(end: int | float | str, name: str, schema: TableSchema) -> Literal:
    """Return an end of a range as a literal of the key's type."""
    type_ = schema.column(name).type
    try:
        return Literal(_value(end, type_), 1)
    except (ValueError, InvalidOperation, OverflowError) as error:
        raise bad_filter(
            "partition",
            f"an end of a range is no value of {schema.table}.{name}, which is {render_type(type_)}",
            "write numbers as numbers or text, dates and times as text in ISO 8601.",
        ) from error


def _value(end: int | float | str, type_: pa.DataType) -> Value:
    if pa.types.is_string(type_) and isinstance(end, str):
        return end
    if pa.types.is_date(type_) and isinstance(end, str):
        return date.fromisoformat(end)
    if pa.types.is_timestamp(type_) and isinstance(end, str):
        moment = datetime.fromisoformat(end)
        if type_.tz is None:
            return moment
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        number = Decimal(str(end)) if len(str(end)) <= _MOST_DIGITS else Decimal("NaN")
        if number.is_finite() and abs(number.adjusted()) < _MOST_DIGITS:
            return int(number) if number == number.to_integral_value() else number
    raise ValueError
