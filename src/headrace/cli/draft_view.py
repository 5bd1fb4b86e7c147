"""What a control plane tells of drafts, drawn for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

__all__ = ["assessed_view", "tables_view"]

_LISTS = ("connectivity", "features", "transformationIssues")


def assessed_view(told: dict[str, Any]) -> RenderableType:
    """Return the problems of a draft or of one of its tables, errors first."""
    found = [problem for name in _LISTS for problem in told.get(name, ())]
    found.sort(key=lambda problem: problem["severity"] != "ERROR")
    lines = [line for problem in found for line in _problem(problem)]
    errors = sum(problem["severity"] == "ERROR" for problem in found)
    verdict = (
        Text(f"{errors} to do first", style="bold red")
        if errors
        else Text("nothing stands in the way", style="bold green")
    )
    return Group(*lines, verdict)


def tables_view(told: dict[str, Any]) -> RenderableType:
    """Return the tables of a draft, or the columns of one."""
    table = Table(box=None, pad_edge=False)
    if "columns" in told:
        for name in ("column", "type", "null", "key"):
            table.add_column(name)
        for column in told["columns"]:
            null = "null" if column["nullable"] else ""
            key = "key" if column["name"] in told["primaryKey"] else ""
            table.add_row(Text(column["name"]), Text(column["type"]), null, key)
        return table
    table.add_column("table")
    table.add_column("columns", justify="right")
    for one in told["tables"]:
        table.add_row(Text(f"{one['schema']}.{one['table']}"), str(one["numColumns"]))
    return table


def _problem(told: dict[str, Any]) -> Iterator[Text]:
    bad = told["severity"] == "ERROR"
    yield Text.assemble(
        (told["severity"].lower(), "bold red" if bad else "bold yellow"),
        " ",
        (told["name"], "bold"),
        f"  {told['description']}",
    )
    yield Text(f"      {told['impact']}")
    yield Text(f"      {told['suggestion']}")
