"""``headrace logs``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from headrace.cli.output import errors_without_traceback
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

__all__ = ["logs"]

_NDJSON = "application/x-ndjson"


@errors_without_traceback
def logs(
    file: FileOrName,
    lines: Annotated[int, typer.Option(min=1, max=10_000, help="How many, from the end.")] = 100,
    every: Annotated[bool, typer.Option("--all", help="All that is kept, to put it away.")] = False,
    process: Annotated[
        Literal["run", "capture", "apply", "relay"], typer.Option(help="Of which process.")
    ] = "run",
    table: Annotated[
        str,
        typer.Option("--table", help="Only what speaks of it, schema.name.", show_default=False),
    ] = "",
    level: Annotated[
        Literal["", "debug", "info", "warning", "error"],
        typer.Option(help="Only what is as grave.", show_default=False),
    ] = "",
    ndjson: Annotated[
        bool, typer.Option("--ndjson", help="One object of JSON per entry, for programs.")
    ] = False,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Show the end of what a replicator's processes say, or all of it.

    [bold]Examples[/bold]
      headrace logs shop --process capture --lines 20
      headrace logs shop --process apply --table public.orders --level warning
      headrace logs shop.yaml --process apply --all --ndjson > apply.ndjson
    """
    name = replicator_named(file)
    if name is None:
        found = list(_of_file(Path(file), process, table, level, ndjson))
    else:
        asked = Server(server, namespace, ca)
        text = asked.text(
            f"replicators/{name}/logs/{process}",
            _NDJSON if ndjson else "text/plain",
            table=table or None,
            level=level or None,
        )
        found = text.splitlines()
    shown = found if every else found[-lines:]
    if as_json:
        printed({"process": process, "lines": shown})
    else:
        for line in shown:
            typer.echo(line)


def _of_file(file: Path, process: str, table: str, level: str, ndjson: bool) -> Iterator[str]:
    from headrace.observe.logs import chosen, entries
    from headrace.replicator import config_file
    from headrace.replicator.known_tables import refuse_unknown
    from headrace.replicator.paths import StatePaths
    from headrace.replicator.supervisor import all_lines

    config = config_file.load(file)
    log = StatePaths.of(config).log(process)
    found = list(chosen(entries(all_lines(log)), table, level))
    if table and not found:
        refuse_unknown(config, table)
    for one in found:
        if ndjson:
            yield json.dumps(one.to_json(process=process))
        else:
            yield from one.text.splitlines()
