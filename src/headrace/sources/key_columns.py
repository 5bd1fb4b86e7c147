"""Keys as texts, one per column of a table's key: in the order of the table's columns here, of its index in SQL."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import ConfigError
from headrace.model.schema import TableId

__all__ = ["in_index_order", "refuse_other_width"]


def in_index_order(
    table: TableId, names: Sequence[str], index: Sequence[str], key: Sequence[str]
) -> list[str]:
    """Return a key's texts as its index has its columns.

    Args:
        table: whose key it is.
        names: of the key's columns, as the table has them.
        index: likewise, as the index has them.
        key: a text for each of ``names``.

    Raises:
        ConfigError: it has more texts or fewer.
    """
    refuse_other_width(table, names, key)
    by_name = dict(zip(names, key, strict=True))
    return [by_name[name] for name in index]


def refuse_other_width(table: TableId, names: Sequence[str], key: Sequence[str]) -> None:
    """Refuse a key that has not a text for each of its columns.

    Raises:
        ConfigError: it has more or fewer.
    """
    if len(key) != len(names):
        raise ConfigError(
            f"{table}: a key has {len(names)} columns ({', '.join(names)}).",
            next_step="give each key with all its columns.",
        )
