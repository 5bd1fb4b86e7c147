"""``headrace status``."""

from __future__ import annotations

import contextlib
import json
from typing import Annotated

import typer

from headrace.cli.output import ConfigFile, console, errors_without_traceback

__all__ = ["status"]


@errors_without_traceback
def status(
    file: ConfigFile,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, for programs.")
    ] = False,
) -> None:
    """Show how a replicator stands: phase, rows and lag of each table.

    Reads files only; it works while the replicator runs and when it does not.

    [bold]Example[/bold]  headrace status shop.yaml --json
    """
    from headrace.cli.live import render
    from headrace.replicator import config_file
    from headrace.replicator.picture import Observer

    config = config_file.load(file)
    with contextlib.closing(Observer(config)) as observer:
        picture = observer.look()
    if as_json:
        typer.echo(json.dumps({"name": config.name, **picture.to_json()}, indent=2))
    else:
        console.print(render(config.name, picture))
