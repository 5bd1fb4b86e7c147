"""Which tables a filter lets through."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.patterns import matches, may_begin

__all__ = ["is_let_through"]


def is_let_through(table: str, patterns: Sequence[str] | None) -> bool:
    """Return whether a table matches one of the patterns; any does when there are none.

    Args:
        table: ``schema.table``; of an event of a namespace ``schema.`` alone.
        patterns: ``schema.table``, where ``*`` and ``?`` stand for any characters.
    """
    if patterns is None:
        return True
    if table.endswith("."):
        return any(may_begin(table, pattern) for pattern in patterns)
    return any(matches(table, pattern) for pattern in patterns)
