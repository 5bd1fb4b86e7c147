"""``headrace activity``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.output import console, errors_without_traceback
from headrace.cli.server import (
    DEFAULT_URL,
    AsJson,
    Authority,
    FileOrName,
    Namespace,
    Server,
    ServerUrl,
    printed,
    replicator_named,
)

__all__ = ["activity"]


@errors_without_traceback
def activity(
    file: FileOrName,
    table: Annotated[
        str | None, typer.Option("--table", help="Only this one, schema.name.", show_default=False)
    ] = None,
    minutes: Annotated[
        int,
        typer.Option("--minutes", min=1, max=43_200, help="How far back; a day is kept."),
    ] = 60,
    hours: Annotated[
        int,
        typer.Option(
            "--hours",
            min=0,
            max=87_600,
            help="As far back by the hour instead; 400 days are kept.",
            show_default=False,
        ),
    ] = 0,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Show what became visible in the target: operations per table and minute, or hour.

    One without any is left out. Of a file it reads files only; it works while the replicator runs and when it
    does not.

    [bold]Examples[/bold]
      headrace activity shop.yaml --table public.orders --minutes 30
      headrace activity shop --hours 48
    """
    name = replicator_named(file)
    if name is not None:
        asked = Server(server, namespace, ca)
        shown = asked.within(
            "GET", f"replicators/{name}/activity", minutes=minutes, hours=hours, table=table
        )
    else:
        shown = _of_file(Path(file), minutes, hours, table)
    if as_json:
        printed(shown)
    else:
        _draw(shown)


def _of_file(file: Path, minutes: int, hours: int, table: str | None) -> dict[str, Any]:
    from headrace.replicator import config_file
    from headrace.replicator.minutes import latest
    from headrace.state.minutes import HOUR_S, MINUTE_S

    config = config_file.load(file)
    span_s = HOUR_S if hours else MINUTE_S
    found = latest(config, time.time(), hours or minutes, table, span_s)
    told = [one.to_json() for one in found]
    return {
        "name": config.name,
        "minutes": [] if hours else told,
        "hours": told if hours else [],
    }


def _draw(shown: dict[str, Any]) -> None:
    from rich.table import Table

    drawn = Table(
        title=shown["name"],
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        # All of it goes into 80 columns where the table's name is short.
        padding=(0, 1, 0, 0),
    )
    drawn.add_column("UTC", no_wrap=True)
    drawn.add_column("table", no_wrap=True)
    for name in ("inserts", "updates", "deletes", "copied", "rows/s", "bytes/s"):
        drawn.add_column(name, justify="right")
    spans = shown["minutes"] or shown["hours"]
    for one in spans:
        begin_s = one.get("minute_s", one.get("hour_s"))
        at = time.strftime("%Y-%m-%d %H:%M", time.gmtime(begin_s))
        numbers = (f"{one[name]:,}" for name in ("inserts", "updates", "deletes", "copied"))
        speeds = (f"{one[name]:,.1f}" for name in ("changes_per_s", "bytes_per_s"))
        drawn.add_row(at, one["table"], *numbers, *speeds)
    console.print(drawn if spans else "nothing became visible in that time")
