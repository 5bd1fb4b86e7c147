"""Tables of MariaDB that keep their own history, which their log has as further rows.

A statement may say so (`headrace.sources.mysql.statements`). A table that is made like such a one, or is renamed, keeps
its history without a word: its description in the log tells then, and the catalog whether it is so.
"""

from __future__ import annotations

from headrace.errors import IncompatibleSchemaChange
from headrace.model.schema import TableId
from headrace.sources.mysql.connection import Session, quote_literal
from headrace.sources.mysql.table_map import TableMap

__all__ = ["KEEPING", "keeps_history", "may_keep_history", "refusal"]

KEEPING = "SYSTEM VERSIONED"
"""What the catalog calls such a table."""

_KIND = (
    "SELECT table_type FROM information_schema.tables WHERE table_schema = {} AND table_name = {}"
)
_BOUND = "timestamp(6)"


def may_keep_history(map_: TableMap) -> bool:
    """Return whether a description has columns for the beginning and the end of a row's life."""
    bounds = [c for c in map_.columns if c.type.name == _BOUND and not c.nullable]
    return len(bounds) > 1


def keeps_history(session: Session, table: TableId) -> bool:
    """Return whether a table keeps its history, as the catalog has it."""
    found = session.texts(_KIND.format(*(quote_literal(part) for part in table)))
    return found == [(KEEPING,)]


def refusal(table: TableId) -> IncompatibleSchemaChange:
    """Return the error for rows that are no rows of the table's."""
    return IncompatibleSchemaChange(
        f"{table}: it keeps its own history from here on, which the log has as further rows.",
        next_step=f"ALTER TABLE {table} DROP SYSTEM VERSIONING, or exclude it; then dump every table again: "
        "headrace resync FILE.",
    )
