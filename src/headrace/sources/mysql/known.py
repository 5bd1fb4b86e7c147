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
        """Return a table as it was when it was read last, or as the catalog has it now; None when there is none.

        Whoever selects by it asks afterwards whether it `holds`.
        """
        known = self._known.get(table)
        if known is not None:
            return known[1]
        text = _described(session, table)
        facts = read_table(session, table, collations)
        if facts is not None:
            facts = with_collations(session, facts)
            self._known[table] = text, facts
        return facts

    def holds(self, session: Session, table: TableId) -> bool:
        """Return whether a table is what was read last; else, and where nobody says, it is forgotten."""
        text = _described(session, table)
        known, _ = self._known.get(table, ("", None))
        if not text or known != text:
            self.forget(table)
        return known == text

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
