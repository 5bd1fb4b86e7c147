"""Any plain values as people read them: single ones a line each, lists of objects as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

__all__ = ["plain_view"]


def plain_view(told: Mapping[str, Any]) -> RenderableType:
    """Return an object of plain values as lines and tables; names of inner ones follow those of the outer."""
    single = Table.grid(padding=(0, 2))
    for _ in range(2):
        single.add_column(overflow="fold")
    tables: list[Table] = []
    for name, value in _leaves(told):
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            tables.append(_table(name, value))
        else:
            single.add_row(Text(name, style="dim"), Text(_said(value)))
    return Group(*([single] if single.row_count else []), *tables)


def _leaves(told: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in told.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _table(name: str, rows: list[Mapping[str, Any]]) -> Table:
    flat = [dict(_leaves(row)) for row in rows]
    columns = dict.fromkeys(column for row in flat for column in row)
    table = Table(title=name, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in flat:
        table.add_row(*(Text(_said(row.get(column))) for column in columns))
    return table


def _said(value: Any) -> str:
    """Return a value in a word; none for what is not there."""
    if isinstance(value, list):
        return ", ".join(map(_said, value)) or "none"
    if isinstance(value, Mapping):
        # What is left of these here is empty, or stands in a list.
        return ", ".join(f"{name} {_said(inner)}" for name, inner in value.items()) or "none"
    if value is None or value == "":
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
