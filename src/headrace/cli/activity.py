"""``headrace activity``."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from headrace.cli.output import ConfigFile, console, errors_without_traceback

__all__ = ["activity"]


@errors_without_traceback
def activity(
    file: ConfigFile,
    table: Annotated[
        str | None, typer.Option("--table", help="Only this one, schema.name.", show_default=False)
    ] = None,
    minutes: Annotated[
        int, typer.Option("--minutes", min=1, help="How far back; a day is kept.")
    ] = 60,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, for programs.")
    ] = False,
) -> None:
    """Show what became visible in the target: operations per table and minute.

    A minute without any is left out. Reads files only; it works while the replicator runs and when it does not.

    [bold]Example[/bold]  headrace activity shop.yaml --table public.orders --minutes 30
    """
    from rich.table import Table

    from headrace.replicator import config_file
    from headrace.replicator.minutes import latest

    config = config_file.load(file)
    from_minute = int(time.time()) // 60 - minutes + 1
    found = [one for one in latest(config, from_minute) if table in (None, one.table)]
    if as_json:
        plain = {"name": config.name, "minutes": [one.to_json() for one in found]}
        typer.echo(json.dumps(plain, indent=2))
        return
    shown = Table(
        title=config.name, title_justify="left", title_style="bold", box=None, pad_edge=False
    )
    shown.add_column("minute, UTC", no_wrap=True)
    shown.add_column("table", no_wrap=True)
    for name in ("inserts", "updates", "deletes", "copied", "changes/s", "bytes/s"):
        shown.add_column(name, justify="right")
    for one in found:
        said, at = one.to_json(), time.strftime("%Y-%m-%d %H:%M", time.gmtime(one.minute * 60))
        numbers = (f"{said[name]:,}" for name in ("inserts", "updates", "deletes", "copied"))
        speeds = (f"{said[name]:,.1f}" for name in ("changes_per_s", "bytes_per_s"))
        shown.add_row(at, one.table, *numbers, *speeds)
    console.print(shown if found else "nothing became visible in that time")
