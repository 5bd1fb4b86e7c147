"""``headrace adopt``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.output import ConfigFile, console, errors_without_traceback
from headrace.plural import counted

__all__ = ["adopt"]


@errors_without_traceback
def adopt(
    file: ConfigFile,
    table: Annotated[str, typer.Option("--table", help="schema.name", show_default=False)],
    files: Annotated[
        Path,
        typer.Option(
            "--files", help="Folder of the dump's Parquet or Arrow files.", show_default=False
        ),
    ],
    at: Annotated[
        str,
        typer.Option("--at", help="LSN of the dump's snapshot, or an SCN.", show_default=False),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, for programs.")
    ] = False,
) -> None:
    """Fill a table from a dump that was made elsewhere, instead of a dump by headrace.

    For tables with first_copy: adopted. The dump holds everything that committed before the LSN, and nothing else: the
    consistent_point and snapshot of CREATE_REPLICATION_SLOT are such a pair. Make it while the replicator runs, which
    keeps its log from there on. This may run beside it, and can be called again after a crash.

    [bold]Example[/bold]  headrace adopt shop.yaml --table public.orders --files /backup/orders --at 16/B374D848
    """
    from headrace.replicator import config_file, runner

    done = runner.adopt(config_file.load(file), table, files, at)
    if as_json:
        typer.echo(json.dumps(asdict(done)))
        return
    rows = "written by an earlier call" if done.rows is None else counted(done.rows, "row")
    console.print(f"adopted {done.table} at SCN {done.scn}: {rows}", soft_wrap=True)
    if done.passed_over:
        console.print(
            f"passed over, for the table has no such columns: {', '.join(done.passed_over)}"
        )
    console.print("live as soon as the replicator has caught up: headrace status", soft_wrap=True)
