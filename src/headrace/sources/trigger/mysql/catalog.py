"""Tables as triggers are to have them now: the catalog's word on columns, and the engine's on storage."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from headrace.model.schema import TableId
from headrace.sources.mysql.catalog import read_rows
from headrace.sources.mysql.connection import QueryFailed, Session, quote_literal
from headrace.sources.mysql.vendors import vendor_of
from headrace.sources.trigger.mysql.layout import Layout

__all__ = ["is_partitioned", "read_layouts", "read_storages"]

_GUARDED = """
SELECT column_name FROM information_schema.statistics
 WHERE table_schema = {0} AND table_name = {1} AND non_unique = 0
UNION SELECT column_name FROM information_schema.key_column_usage
 WHERE table_schema = {0} AND table_name = {1} AND referenced_table_name IS NOT NULL
UNION SELECT referenced_column_name FROM information_schema.key_column_usage
 WHERE referenced_table_schema = {0} AND referenced_table_name = {1}
"""
_COMPUTED = (
    "SELECT CONCAT(column_name, ' ', generation_expression) FROM information_schema.columns "
    "WHERE table_schema = {} AND table_name = {} AND generation_expression <> '' ORDER BY ordinal_position"
)
_PARTITIONED = (
    "SELECT COUNT(*) FROM information_schema.partitions "
    "WHERE table_schema = {} AND table_name = {} AND partition_name IS NOT NULL"
)

_PLAIN = re.compile(r"[0-9A-Za-z_]")
_PART = re.compile(r"#p#", re.IGNORECASE)


def read_storages(session: Session) -> dict[str, str]:
    """Return what the engine calls the storage of each table, by its name for the table.

    The engine's number of a table is another one when the table was emptied or written anew.

    Raises:
        QueryFailed: we may not ask.
    """
    found: dict[str, list[str]] = {}
    for name, number in session.texts(vendor_of(session).engine_tables):
        # A partitioned table has a number for each of its partitions.
        found.setdefault(_PART.split(name or "")[0], []).append(number or "")
    return {name: " ".join(sorted(numbers)) for name, numbers in found.items()}


def _read_columns_made(session: Session) -> dict[str, str]:
    """Return how often columns of a table came or went at once, by the engine's name; empty where nobody says."""
    made = vendor_of(session).engine_columns_made
    try:
        return {name or "": count or "" for name, count in session.texts(made)} if made else {}
    except QueryFailed:
        return {}  # MySQL before 8.0.29 does not count.


def read_layouts(
    session: Session,
    tables: Iterable[TableId],
    registered: Mapping[TableId, Layout],
    stale: set[int],
) -> dict[TableId, Layout]:
    """Return what the triggers of those tables that are there would be made for now.

    Args:
        session: asks.
        tables: to look at.
        registered: the layouts of their triggers.
        stale: layouts whose triggers met a table that lacked a column.
    """
    storages, made = read_storages(session), _read_columns_made(session)
    found = {}
    for table in tables:
        rows = read_rows(session, table)
        if rows is None:
            continue
        before = registered.get(table)
        turn = before.turn + (before.layout_id in stale) if before is not None else 0
        name = f"{_engine_name(table.schema)}/{_engine_name(table.name)}"
        named = [quote_literal(part) for part in table]
        guarded = sorted(c or "" for (c,) in session.texts(_GUARDED.format(*named)))
        values = [cell or "" for (cell,) in session.texts(_COMPUTED.format(*named))]
        values += [made[name]] if name in made else []
        found[table] = Layout(rows, storages.get(name, ""), tuple(guarded), turn, tuple(values))
    return found


def is_partitioned(session: Session, table: TableId) -> bool:
    """Return whether a table lies in partitions."""
    return session.value(_PARTITIONED.format(*map(quote_literal, table))) != "0"


def _engine_name(name: str) -> str:
    """Return a name as the engine writes it; letters beyond ASCII it writes in a form of its own, and has no match."""
    return "".join(c if _PLAIN.match(c) else f"@{ord(c):04x}" for c in name)
