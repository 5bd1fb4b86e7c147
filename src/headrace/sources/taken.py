"""Columns that are called like something of headrace's own: their table is refused by name before it is in the log.

A block would have two columns of one name, and nobody behind could tell which is meant.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.fold.form import taken_names
from headrace.sources.base import Finding

__all__ = ["LEFT_OUT", "NOT_LEFT_OUT", "taken"]

LEFT_OUT = "leave the column out (source.columns), or exclude the table; then start again."
"""What to do where the source lets columns be left out."""

NOT_LEFT_OUT = (
    "exclude the table and start again; take it in again once the column has another name."
)
"""What to do where it does not; the log still has the old name after the column was renamed."""


def taken(table: str, names: Iterable[str], key: Iterable[str], suggestion: str) -> list[Finding]:
    """Return the finding of a table with such columns, none where there is no such column.

    Args:
        table: its name.
        names: of the columns that are to be captured.
        key: names of those that are its key.
        suggestion: how to be rid of them.
    """
    if not (found := taken_names(names, key)):
        return []
    description = (
        f"{table} has columns with names that headrace needs for itself: {', '.join(found)}."
    )
    return [Finding("column-name-taken", description, suggestion, table=table)]
