"""``headrace explain``."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headrace.cli.explained import Explained, names
from headrace.cli.explained import explain as explained
from headrace.cli.output import console, errors_without_traceback

__all__ = ["explain"]


@errors_without_traceback
def explain(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="An error or a note as messages name it, or a problem of an assessment.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what an error, a problem or a note means, how it comes about, and what to do; without a name list all.

    headrace explain SlotLost

    headrace explain wal-level
    """
    if name is None:
        _list(names(), as_json)
        return
    found = explained(name)
    if as_json:
        console.print_json(json.dumps(found.to_json()))
        return
    kinds = " · ".join(found.belongs_to)
    console.print(Text.assemble((found.name, "bold"), f"  {found.sort}", f" · {kinds}"))
    console.print(found.meaning)
    console.print(Text.assemble(("then ", "bold"), found.then))
    for case in found.cases:
        console.print()
        console.print(Text(f"· {_plain(case.what)}"))
        for title, said in (("next step", case.next_step), ("not lost", case.not_lost)):
            if said:
                line = Text.assemble((f"{title} ", "bold"), _plain(said))
                console.print(Padding(line, (0, 0, 0, 2)))


def _list(found: list[Explained], as_json: bool) -> None:
    if as_json:
        console.print_json(json.dumps([one.to_json() for one in found]))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("name", "what it means"):
        table.add_column(title, overflow="fold")
    for one in found:
        table.add_row(one.name, one.meaning)
    console.print(table)


def _plain(text: str) -> str:
    """Return a cell of the page without its marks."""
    return text.replace("`", "").replace("*", "")
