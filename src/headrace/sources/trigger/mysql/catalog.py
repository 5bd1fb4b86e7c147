"""Tables as triggers are to have them now: the catalog's word on columns, and the engine's on storage."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from headrace.model.schema import TableId
from headrace.sources.mysql.catalog import read_rows
from headrace.sources.mysql.connection import Session
from headrace.sources.mysql.vendors import vendor_of
from headrace.sources.trigger.mysql.layout import Layout

__all__ = ["read_layouts", "read_storages"]

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
    storages = read_storages(session)
    found = {}
    for table in tables:
        rows = read_rows(session, table)
        if rows is None:
            continue
        before = registered.get(table)
        turn = before.turn + (before.layout_id in stale) if before is not None else 0
        name = f"{_engine_name(table.schema)}/{_engine_name(table.name)}"
        found[table] = Layout(rows, storages.get(name, ""), turn)
    return found


def _engine_name(name: str) -> str:
    """Return a name as the engine writes it; letters beyond ASCII it writes in a form of its own, and has no match."""
    return "".join(c if _PLAIN.match(c) else f"@{ord(c):04x}" for c in name)
