"""``headrace lineage``."""

from __future__ import annotations

import contextlib
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

__all__ = ["lineage"]


@errors_without_traceback
def lineage(
    file: FileOrName,
    table: Annotated[
        str | None, typer.Option("--table", help="Only this one, schema.name.", show_default=False)
    ] = None,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Show where each column of the target comes from.

    Of the tables as they are now; a section lineage in the file sends the same to a collector as OpenLineage events,
    with every change of shape.

    [bold]Examples[/bold]
      headrace lineage shop.yaml --table public.orders
      headrace lineage shop --json
    """
    name = replicator_named(file)
    if name is not None:
        asked = Server(server, namespace, ca)
        shown = asked.within("GET", f"replicators/{name}/lineage", table=table)
    else:
        shown = _of_file(Path(file), table)
    if as_json:
        printed(shown)
    else:
        _draw(shown)


def _of_file(file: Path, table: str | None) -> dict[str, Any]:
    from headrace.replicator import config_file
    from headrace.replicator.lineage.known import Known
    from headrace.replicator.picture import Observer

    config = config_file.load(file)
    with contextlib.closing(Observer(config)) as observer:
        tables = Known(config).shown(observer.look(), table)
    return {"name": config.name, "tables": tables}


def _draw(shown: dict[str, Any]) -> None:
    from rich.table import Table

    if not shown["tables"]:
        console.print("no target table yet")
    for one in shown["tables"]:
        drawn = Table(
            title=one["table"], title_justify="left", title_style="bold", box=None, pad_edge=False
        )
        for name in ("target column", "how", "source columns"):
            drawn.add_column(name, overflow="fold")
        for column in one["columns"]:
            drawn.add_row(column["column"], column["how"], ", ".join(column["inputs"]))
        if one["filters"]:
            drawn.add_row("", "rows by", ", ".join(one["filters"]))
        console.print(drawn)
