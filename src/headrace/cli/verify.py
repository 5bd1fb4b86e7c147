"""``headrace verify``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from headrace.cli.output import console, errors_without_traceback, notes
from headrace.cli.server import (
    DEFAULT_URL,
    Authority,
    FileOrName,
    Namespace,
    Server,
    ServerUrl,
    file_of,
)

if TYPE_CHECKING:
    from headrace.replicator.verify_report import TableReport, VerifyReport

__all__ = ["verify"]


_WHY = {
    "append": "its target keeps changes, not rows",
    "where": "its target has the rows of a condition",
    "ignore": "its target ignores operations of the source",
}


@errors_without_traceback
def verify(
    file: FileOrName,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, for programs.")
    ] = False,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
) -> None:
    """Compare every table with the source, row by row, while writes go on.

    The source's side is one snapshot, rendered and hashed by the server itself; the target's side is a
    frontier plus exactly the later transactions that the snapshot sees. One that a control plane runs is named by its
    name, on the control plane's machine. What it waits for, for two minutes at most, stands on the standard error.

    Exit code: 0 when all tables are equal, 1 when one is not, 2 on an error.

    [bold]Example[/bold]  headrace verify shop.yaml --json
    """
    from headrace.replicator import config_file, runner

    config = config_file.load(file_of(file, Server(server, namespace, ca)))
    report = runner.verify(config, lambda line: notes.print(line, soft_wrap=True))
    if as_json:
        typer.echo(json.dumps(report.to_json(), indent=2))
    else:
        _show(report)
    if not report.equal:
        raise typer.Exit(1)


def _style(entry: TableReport) -> str:
    if not entry.comparable:
        return "yellow"
    return "green" if entry.equal else "bold red"


def _show(report: VerifyReport) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("table", "", "source rows", "target rows", "keys that differ"):
        table.add_column(name, justify="right" if "rows" in name or "keys" in name else "left")
    for entry in report.tables:
        table.add_row(
            entry.table,
            Text(entry.state, style=_style(entry)),
            f"{entry.source_rows:,}",
            f"{entry.target_rows:,}",
            f"{entry.differing_keys:,}",
        )
    console.print(table)
    for entry in report.tables:
        if not entry.comparable:
            console.print(f"{entry.table} is not compared: {_WHY[entry.state]}")
        elif entry.left_out:
            console.print(f"{entry.table} is compared without {', '.join(entry.left_out)}")
    if not any(entry.comparable for entry in report.tables):
        console.print("nothing was compared")
        return
    verdict = ("source = target", "bold green") if report.equal else ("unequal", "bold red")
    console.print(Text.assemble(verdict))
