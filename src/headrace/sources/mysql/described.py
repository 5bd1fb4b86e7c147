"""What the catalog and its statistics say of tables that nobody captures yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from headrace.model.schema import TableId
from headrace.sources.description import (
    ColumnDescription,
    Given,
    SourceDescription,
    TableDescription,
)
from headrace.sources.mysql.catalog import CatalogColumn, read_collations, read_table, undecoded
from headrace.sources.mysql.connection import QueryFailed, Session, quote_literal
from headrace.sources.mysql.preflight import captured_tables
from headrace.sources.mysql.settings import MysqlSettings
from headrace.sources.mysql.types import ColumnType, Kind

__all__ = ["patterned", "read_description", "written_bytes"]

_STATISTICS = """
SELECT table_rows, data_length + index_length FROM information_schema.tables
 WHERE table_schema = {} AND table_name = {}
"""


def patterned(settings: MysqlSettings, patterns: Sequence[str] | None) -> MysqlSettings:
    """Return the settings with other patterns, and nothing excluded then."""
    return settings if patterns is None else replace(settings, tables=tuple(patterns), exclude=())


def read_description(
    session: Session, settings: MysqlSettings, only: TableId | None = None
) -> SourceDescription:
    """Return the tables that the settings select, or one table, selected or not.

    A server has many databases, each of them the schema of its tables: it has no name of its own.
    """
    collations = read_collations(session)
    found = []
    for table in [only] if only else captured_tables(session, settings):
        facts = read_table(session, table, collations)
        if facts is None:
            continue
        names = [quote_literal(part) for part in table]
        statistics = session.texts(_STATISTICS.format(*names))
        rows, size = statistics[0] if statistics else (None, None)
        absent = {name for name, _ in undecoded(facts)}
        found.append(
            TableDescription(
                table,
                tuple(_column(column, absent) for column in facts.columns),
                facts.key,
                tuple(c.name for c in facts.columns if c.name in facts.key),
                None if rows is None else int(rows),
                None if size is None else int(size),
            )
        )
    return SourceDescription("", tuple(found))


def written_bytes(session: Session) -> int:
    """Return how many bytes of log the server has written since it was started."""
    name = "Binlog_bytes_written"
    try:
        return int(session.texts(f"SHOW GLOBAL STATUS LIKE '{name}'")[0][1] or 0)
    except (QueryFailed, IndexError):
        return 0


def _column(column: CatalogColumn, absent: set[str]) -> ColumnDescription:
    type_ = column.type
    if type_ is None or column.name in absent:
        return ColumnDescription(
            column.name, column.declared, column.nullable, pa.string(), Given.ABSENT
        )
    given = Given.AS_TEXT if _is_rendered(type_) else Given.EXACT
    return ColumnDescription(column.name, type_.name, column.nullable, type_.arrow, given)


def _is_rendered(type_: ColumnType) -> bool:
    """Return whether values that are no text come as one."""
    if not pa.types.is_string(type_.arrow):
        return False
    return bool(type_.native) or type_.kind in (Kind.ENUM, Kind.SET, Kind.TIME, Kind.DECIMAL)
