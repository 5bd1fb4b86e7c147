"""``headrace rewind``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.output import console, errors_without_traceback
from headrace.cli.server import DEFAULT_URL, AsJson, Authority, Namespace, ServerUrl
from headrace.plural import counted

__all__ = ["rewind"]


@errors_without_traceback
def rewind(
    what: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE",
            help="A replicator of the control plane by its name, or one of headrace run by its file.",
        ),
    ],
    to: Annotated[
        str, typer.Option("--to", metavar="SCN|TIME", help="SCN, or commit time in ISO 8601.")
    ],
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Bring the tables of a replicator that stands still back to an earlier frontier.

    It is the newest one that is kept and not behind what was asked for. When the replicator is started, the change log
    is applied from there once more. Killed at any moment, the tables are at the one frontier or at the other.

    [bold]Examples[/bold]
      headrace stop shop --wait && headrace rewind shop --to 2026-11-24T10:00:00+00:00
      headrace rewind shop.yaml --to 81
    """
    from headrace.cli.server import Server, printed, replicator_named

    name = replicator_named(what)
    done = (
        _of_file(Path(what), to)
        if name is None
        else Server(server, namespace, ca).within("POST", f"replicators/{name}/rewind", {"to": to})
    )
    if as_json:
        printed(done)
        return
    console.print(
        f"rewound from SCN {done['was_scn']} to {done['scn']}: {counted(len(done['tables']), 'table')}"
    )
    for table in done["removed"]:
        console.print(f"  {table} came later, and comes again")


def _of_file(file: Path, to: str) -> dict[str, Any]:
    from headrace.replicator import config_file
    from headrace.replicator.rewind import rewind

    return rewind(config_file.load(file), to).to_json()
