"""``headrace dump``."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.output import ConfigFile, console, errors_without_traceback

__all__ = ["dump"]


@errors_without_traceback
def dump(
    file: ConfigFile,
    table: Annotated[str, typer.Option(help="schema.table, or 'all'.")],
    keys: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this key; repeat it. Parts of a composite key stand apart by commas."
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when the rows are in the change log.")
    ] = False,
) -> None:
    """Read a table, or some of its rows, again, while everything else goes on.

    The request is queued durably; a running replicator takes it up within a second.

    [bold]Examples[/bold]
      headrace dump shop.yaml --table public.orders --wait
      headrace dump shop.yaml --table public.items --keys 17,1 --keys 17,2
    """
    from headrace.replicator import config_file, requests

    request_id = requests.submit(config_file.load(file), table, keys or [])
    console.print(f"queued: request {request_id}")
    if wait:
        outcome = requests.wait(config_file.load(file), request_id)
        console.print(outcome)
