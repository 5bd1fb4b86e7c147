"""Patterns of table names, such as ``public.*`` or ``shop.order_?``."""

from __future__ import annotations

import re

from headrace.model.schema import TableId

__all__ = ["TablePatterns"]

_WILD = re.compile(r"[*?]")


class TablePatterns:
    """Names of tables, some with wildcards. Thousands of plain names cost no more to look up than one.

    Args:
        texts: ``schema.name``; a name without a dot is looked for in ``public``.
    """

    def __init__(self, texts: tuple[str, ...]) -> None:
        parsed = [TableId.parse(text) for text in texts]
        self._plain = {table for table in parsed if not _WILD.search(f"{table.schema}{table.name}")}
        self._schemas = {table.schema for table in self._plain}
        self._globs = [
            (_glob(table.schema), _glob(table.name)) for table in parsed if table not in self._plain
        ]

    def match(self, table: TableId) -> bool:
        """Return whether a table has one of the names."""
        return table in self._plain or any(
            schema.fullmatch(table.schema) and name.fullmatch(table.name)
            for schema, name in self._globs
        )

    def match_schema(self, schema: str) -> bool:
        """Return whether a table with one of the names may lie in a schema."""
        return schema in self._schemas or any(glob.fullmatch(schema) for glob, _ in self._globs)


def _glob(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)
