"""A filter as it is asked for: plain values, checked, with one canonical form.

``docs/relay_protocol.md``, section Filters, is the specification. Whatever does not depend on the tables is refused
here; what does is refused when the filter is bound to their versions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.model.schema import TableSchema
from headrace.wire.filters.apply import BoundFilter
from headrace.wire.filters.faults import bad_filter
from headrace.wire.filters.language import parse_condition
from headrace.wire.filters.partition import Bound, Counted, Partition, Range, Ranged
from headrace.wire.filters.tables import is_let_through

__all__ = ["Filter", "parse_filter"]

_PARTS = {"tables", "columns", "partition", "where"}
_MOST_COUNT = 65_536
_MOST_NAMES = 10_000
_MOST_RANGES = 100


@dataclass(frozen=True, slots=True)
class Filter:
    """Which part of a stream is wanted. Equal filters ask for the same.

    Attributes:
        tables: names and patterns, ascending; None for all tables.
        columns: the columns that are wanted of some tables, ascending.
        partition: of the keys; None for all of them.
        where: the conditions on the rows of some tables, ascending.
    """

    tables: tuple[str, ...] | None = None
    columns: tuple[tuple[str, tuple[str, ...]], ...] = ()
    partition: Partition | None = None
    where: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain values, the same for equal filters; `parse_filter` reads them back."""
        said: dict[str, Any] = {}
        if self.tables is not None:
            said["tables"] = list(self.tables)
        if self.columns:
            said["columns"] = {table: list(names) for table, names in self.columns}
        if self.partition is not None:
            said["partition"] = self.partition.to_json()
        if self.where:
            said["where"] = dict(self.where)
        return said

    def bound(self, schemas: Callable[[int], TableSchema]) -> BoundFilter:
        """Return the filter for the tables of one source.

        Args:
            schemas: returns the table version of a schema id.
        """
        return BoundFilter(
            self.tables, dict(self.columns), self.partition, dict(self.where), schemas
        )


def parse_filter(value: Mapping[str, Any]) -> Filter:
    """Return the filter that plain values describe.

    Raises:
        BadFilter: they describe none; the message names part and place.
    """
    if not isinstance(value, Mapping):
        raise bad_filter("the whole", "it is no JSON object")
    for name in value:
        if name not in _PARTS:
            raise bad_filter(
                "the whole", "it has a part that is none of " + ", ".join(sorted(_PARTS))
            )
    tables = _names(value["tables"], "tables") if "tables" in value else None
    filter_ = Filter(
        tables,
        tuple(sorted(_columns(value.get("columns", {})))),
        _partition(value["partition"]) if "partition" in value else None,
        tuple(sorted(_where(value.get("where", {})))),
    )
    for part, named in (("columns", dict(filter_.columns)), ("where", dict(filter_.where))):
        for table in named:
            if not is_let_through(table, tables):
                raise bad_filter(f"{part} of {table}", "tables leaves this table out")
    return filter_


def _names(value: Any, place: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise bad_filter(place, "it is no list of names")
    if not 0 < len(value) <= _MOST_NAMES:
        raise bad_filter(place, f"it names {len(value):,}, not 1 to {_MOST_NAMES:,}")
    return tuple(sorted(set(value)))


def _columns(value: Any) -> list[tuple[str, tuple[str, ...]]]:
    return [
        (table, _names(names, f"columns of {table}"))
        for table, names in _of_tables(value, "columns")
    ]


def _where(value: Any) -> list[tuple[str, str]]:
    found = []
    for table, text in _of_tables(value, "where"):
        if not isinstance(text, str):
            raise bad_filter(f"where of {table}", "the condition is no text")
        parse_condition(text, f"where of {table}")
        found.append((table, text))
    return found


def _of_tables(value: Any, part: str) -> list[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        raise bad_filter(part, "it is no JSON object")
    for table in value:
        schema, dot, name = str(table).partition(".")
        if not (schema and dot and name):
            raise bad_filter(part, "a key of it is not the name of a table, schema.table")
    return list(value.items())


def _partition(value: Any) -> Partition:
    by = value.get("by") if isinstance(value, Mapping) else None
    if by == "range":
        _only(value, {"by", "ranges"})
        return Ranged(_ranges(value.get("ranges")))
    if by not in ("mod", "hash"):
        raise bad_filter("partition", "by is none of mod, hash, range")
    _only(value, {"by", "count", "take"})
    count, take = value.get("count"), value.get("take")
    if not _is_whole(count) or not 0 < count <= _MOST_COUNT:
        raise bad_filter("partition", f"count is no number from 1 to {_MOST_COUNT:,}")
    if not isinstance(take, list) or not take:
        raise bad_filter("partition", "take is no list of partitions")
    if not all(_is_whole(number) and 0 <= number < count for number in take):
        raise bad_filter("partition", f"take names what is no partition from 0 to {count - 1:,}")
    return Counted(str(by), count, tuple(sorted(set(take))))


def _only(value: Mapping[str, Any], names: set[str]) -> None:
    if not value.keys() <= names:
        raise bad_filter("partition", "it has more than " + ", ".join(sorted(names)))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _ranges(value: Any) -> tuple[Range, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= _MOST_RANGES:
        raise bad_filter("partition", f"ranges is no list of 1 to {_MOST_RANGES}")
    return tuple(_range(one, f"partition, range {place}") for place, one in enumerate(value, 1))


def _range(value: Any, place: str) -> Range:
    if not isinstance(value, Mapping) or not value.keys() <= {"from", "below"}:
        raise bad_filter(place, "it has more or less than from and below")
    return Range(_bound(value.get("from"), place), _bound(value.get("below"), place))


def _bound(value: Any, place: str) -> Bound:
    if value is None or _is_whole(value):
        return value if value is None else int(value)
    if isinstance(value, float) and math.isfinite(value):
        return int(value) if value.is_integer() else value
    if isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value):
        return value
    raise bad_filter(place, "an end is neither a number nor a text")
