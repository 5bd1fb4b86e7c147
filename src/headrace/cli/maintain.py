"""``headrace maintain``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from headrace.cli.output import console, errors_without_traceback
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
    from headrace.replicator.maintain import TableMaintained

__all__ = ["maintain"]


@errors_without_traceback
def maintain(
    file: FileOrName,
    table: Annotated[
        str | None, typer.Option("--table", help="Only this table: schema.name.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON array, for programs.")
    ] = False,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
) -> None:
    """Bring the files of Delta tables into order now: merge small ones, sort by key, drop deleted rows.

    A running replicator does that by itself, a little between batches; this does all that is left at once, before a
    large query for one, or for a replicator that rests. No row and no position changes, every frontier reads as before,
    and files that nobody was promised go. It may run while the replicator does: where both want the same
    files, the replicator wins, and the table says that it gave way.

    [bold]Example[/bold]  headrace maintain shop.yaml --table public.orders
    """
    from headrace.replicator import config_file, runner

    done = runner.maintain(config_file.load(file_of(file, Server(server, namespace, ca))), table)
    if as_json:
        typer.echo(json.dumps([entry.to_json() for entry in done], indent=2))
    else:
        _show(done)


def _show(done: list[TableMaintained]) -> None:
    if not done:
        console.print("no target table yet: nothing to do")
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("table")
    for name in ("pieces", "files", "MiB", "deleted rows", "files removed", "seconds"):
        table.add_column(name, justify="right")
    for entry in done:
        table.add_row(
            entry.table,
            f"{entry.pieces:,}",
            f"{entry.files_before:,} → {entry.files_after:,}",
            f"{entry.bytes_before / 2**20:,.1f} → {entry.bytes_after / 2**20:,.1f}",
            f"{entry.deleted_before:,} → {entry.deleted_after:,}",
            f"{entry.files_removed:,}",
            f"{entry.seconds:,.1f}",
        )
    console.print(table)
    for entry in done:
        if entry.gave_way:
            console.print(
                f"{entry.table} gave way: the replicator writes the same files all the time, and maintains them itself",
                soft_wrap=True,
            )
