"""``headrace export``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.output import ConfigFile, console, errors_without_traceback

__all__ = ["export"]


@errors_without_traceback
def export(
    file: ConfigFile,
    to: Annotated[Path, typer.Option("--to", help="Folder of all exports.", show_default=False)],
    namespace: Annotated[
        str, typer.Option("--namespace", help="First part of the path below.")
    ] = "default",
    generation: Annotated[int, typer.Option("--generation", min=0, help="Last part of it.")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, for programs.")
    ] = False,
) -> None:
    """Write offset and state into files, for tools that know the layout of the Replicator's design.

    The files are <to>/<namespace>/<name>/<generation>/offset.<commit time> and state.json beside it. headrace itself
    reads neither. It works while the replicator runs and when it does not; each call adds the newest offset.

    [bold]Example[/bold]  headrace export shop.yaml --to /srv/delta
    """
    from headrace.replicator import config_file
    from headrace.replicator.export import export as write

    done = write(config_file.load(file), to, namespace, generation)
    if as_json:
        paths = {"offset": str(done.offset) if done.offset else None, "state": str(done.state)}
        typer.echo(json.dumps(paths, indent=2))
        return
    console.print(f"state   {done.state}", soft_wrap=True)
    offset = done.offset or "none yet: there is no frontier before the first batch"
    console.print(f"offset  {offset}", soft_wrap=True)
