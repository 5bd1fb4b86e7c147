"""Table maps to table versions: what the rows behind a description are.

The log's own description decides. Where it names no columns, the catalog must have the very same columns; where it
cannot tell a type from plain bytes (``uuid``), the catalog is asked, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from headrace.errors import SourceError
from headrace.model.schema import TableId, TableSchema
from headrace.sources.mysql.catalog import CatalogColumn, TableFacts, table_schema
from headrace.sources.mysql.table_map import LoggedColumn, TableMap
from headrace.sources.mysql.types import ColumnType

__all__ = ["Version", "version_of"]

_HASH = re.compile(r"DB_ROW_HASH_\d+")


@dataclass(frozen=True, slots=True)
class Version:
    """A table as rows of the log have it.

    Attributes:
        schema: the table's shape.
        types: of its columns, in order; more than the shape has where the last ones are the server's own.
    """

    schema: TableSchema
    types: tuple[ColumnType, ...]


def version_of(map_: TableMap, catalog: Callable[[TableId], TableFacts | None]) -> Version:
    """Return what the rows of a table map are.

    Args:
        map_: the log's description.
        catalog: returns a table as the catalog has it now.

    Raises:
        SourceError: the log names no columns, and the catalog has others by now; or text that is not decoded here.
    """
    asked = not map_.named or _may_be_native(map_) or _may_be_hidden(map_.columns[-1])
    facts = catalog(map_.table) if asked else None
    if not map_.named:
        return _by_catalog(map_, facts)
    known = {column.name: column for column in facts.columns} if facts is not None else {}
    columns = [
        (column.name, _with_native(column.type, known.get(column.name)), column.nullable)
        for column in map_.columns
    ]
    types = tuple(type_ for _, type_, _ in columns)
    key = tuple(map_.columns[place].name for place in map_.key or ())
    while _may_be_hidden(map_.columns[len(columns) - 1]) and columns[-1][0] not in known:
        columns.pop()
    return Version(table_schema(map_.table, columns, key), types)


def _may_be_hidden(column: LoggedColumn) -> bool:
    """Whether the last column of a table may be one that MariaDB made for a unique key of long values."""
    return _HASH.fullmatch(column.name) is not None


def _may_be_native(map_: TableMap) -> bool:
    return any(c.type.name in ("binary(16)", "binary(4)") for c in map_.columns)


def _with_native(logged: ColumnType, found: CatalogColumn | None) -> ColumnType:
    if found is None or found.type is None or not found.type.native:
        return logged
    return found.type if replace(found.type, native="") == logged else logged


def _by_catalog(map_: TableMap, facts: TableFacts | None) -> Version:
    if facts is None or not _fits(map_.columns, facts.columns):
        raise SourceError(
            f"{map_.table}: the log does not name its columns, and the catalog has others by now.",
            next_step="SET GLOBAL binlog_row_metadata = FULL; and dump the table again.",
        )
    types = tuple(column.type for column in facts.columns if column.type is not None)
    columns = [
        (column.name, type_, column.nullable)
        for column, type_ in zip(facts.columns, types, strict=True)
    ]
    in_order = tuple(column.name for column in facts.columns if column.name in facts.key)
    return Version(table_schema(map_.table, columns, in_order), types)


def _fits(logged: tuple[LoggedColumn, ...], found: tuple[CatalogColumn, ...]) -> bool:
    """Return whether columns of the catalog lie in a row as the log says, in number, form and nulls."""
    return len(logged) == len(found) and all(
        two.type is not None and _form(one.type) == _form(two.type) and one.nullable == two.nullable
        for one, two in zip(logged, found, strict=True)
    )


def _form(type_: ColumnType) -> ColumnType:
    return ColumnType(type_.kind, length=type_.length, precision=type_.precision, scale=type_.scale)
