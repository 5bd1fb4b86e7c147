"""``headrace schema``: what changes of tables at the source do to their targets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from headrace.cli.output import ConfigFile, console, errors_without_traceback
from headrace.plural import counted

if TYPE_CHECKING:
    from headrace.replicator.schema_diff import TableDiff

__all__ = ["schema"]

schema = typer.Typer(
    help=(
        "See what changes of tables at the source do to their targets.\n\n"
        "[bold]Example[/bold]\n\n"
        "  headrace schema diff shop.yaml"
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

_STYLES = {
    "refused": "bold red",
    "drop": "yellow",
    "keep": "yellow",
    "aside": "yellow",
    "recopy": "magenta",
    "rename": "cyan",
    "add": "green",
}


@schema.callback()
def _group() -> None:
    """Keep ``diff`` a command of its own: a group of one would swallow its name."""


@schema.command()
@errors_without_traceback
def diff(
    file: ConfigFile,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON array, for programs.")
    ] = False,
) -> None:
    """Show how the source's tables differ from the target's, column by column; change nothing.

    The target follows with the first change of a table after its migration, so a difference may stand for a while.
    Where the file has a policy (changes), the detail names it.
    Try a migration on a copy of the source, and see here what it will do.

    Exit code: 0 when the target can follow everything, 1 when a change is refused, 2 on an error.

    [bold]Example[/bold]  headrace schema diff shop.yaml
    """
    from headrace.replicator import config_file, runner

    found = runner.schema_diff(config_file.load(file))
    if as_json:
        typer.echo(json.dumps([table.to_json() for table in found], indent=2))
    else:
        _show(found)
    if any(table.refused for table in found):
        raise typer.Exit(1)


def _show(found: list[TableDiff]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("table", "change", "column", "detail"):
        table.add_column(name)
    for entry in found:
        if entry.state == "new":
            table.add_row(
                entry.table,
                Text("new", style="green"),
                "",
                "its target comes with its first row",
            )
        for change in entry.changes:
            kind = Text(change.kind.value, style=_STYLES.get(change.kind.value, ""))
            table.add_row(entry.table, kind, change.column, change.detail)
    if table.row_count:
        console.print(table)
    same = sum(entry.state == "same" for entry in found)
    have = "has" if len(found) == 1 else "have"
    of_all = f"{same} of {counted(len(found), 'table')}"
    console.print(f"{of_all} {have} the same columns at the source and at the target")
    if any(entry.refused for entry in found):
        console.print(
            Text.assemble(
                ("refused", "bold red"),
                ": such a table waits, the others go on; move its target away and copy it again, or undo the migration",
            ),
            soft_wrap=True,
        )
