"""Tables that were read from the catalog before, as long as the server still describes them alike.

A table's statement of creation is one short answer that says everything of its columns and its key; what the catalog's
own tables say of them costs some twenty times as much.
"""

from __future__ import annotations

import re

from headrace.model.schema import TableId
from headrace.sources.mysql.catalog import TableFacts, read_table, with_collations
from headrace.sources.mysql.charsets import Collations
from headrace.sources.mysql.connection import QueryFailed, Session
from headrace.sources.mysql.keyset import table_sql

__all__ = ["KnownTables"]

_OPTIONS = "\n) ENGINE="
_NEXT_NUMBER = re.compile(r" AUTO_INCREMENT=\d+")


class KnownTables:
    """Tables of one connection's server."""

    def __init__(self) -> None:
        self._known: dict[TableId, tuple[str, TableFacts]] = {}

    def read(self, session: Session, table: TableId, collations: Collations) -> TableFacts | None:
        """Return a table as the catalog has it now, None when there is none of that name."""
        text = _described(session, table)
        known = self._known.get(table)
        if known is not None and known[0] == text:
            return known[1]
        facts = read_table(session, table, collations)
        if facts is not None:
            facts = with_collations(session, facts)
        # Else it became another one in between, and what was read may be of either.
        if facts is not None and text and _described(session, table) == text:
            self._known[table] = text, facts
        return facts

    def forget(self, table: TableId) -> None:
        """Read a table anew when it is asked for."""
        self._known.pop(table, None)


def _described(session: Session, table: TableId) -> str:
    """Return a table's statement of creation without the next number that it gives; empty where we may not see it."""
    try:
        ((_, text, *_),) = session.texts(f"SHOW CREATE TABLE {table_sql(table)}")
    except QueryFailed:
        return ""
    columns, options, rest = (text or "").rpartition(_OPTIONS)
    return columns + options + _NEXT_NUMBER.sub("", rest)
