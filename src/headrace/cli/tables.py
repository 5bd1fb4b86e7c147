"""``headrace tables``: the tables that a configuration selects, and the columns of one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from headrace.cli.output import ConfigFile, console, errors_without_traceback

if TYPE_CHECKING:
    from headrace.replicator.assess.tables import Described, TableList

__all__ = ["tables"]


@errors_without_traceback
def tables(
    file: ConfigFile,
    table: Annotated[str, typer.Option("--table", help="One table, schema.name.")] = "",
    every: Annotated[
        bool, typer.Option("--every", help="All tables of the source, not only the selected.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, for programs.")
    ] = False,
) -> None:
    """List the tables that a configuration selects, or describe one of the source's; change nothing.

    [bold]Example[/bold]  headrace tables shop.yaml --table public.orders
    """
    from headrace.replicator.assess.document import load_document, source_configured
    from headrace.replicator.assess.tables import describe_table, list_tables

    config = source_configured(load_document(file))
    found = describe_table(config, table) if table else list_tables(config, every=every)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
    else:
        _show(found)


def _show(found: Described | TableList) -> None:
    from headrace.replicator.assess.tables import Described

    table = Table(box=None, pad_edge=False)
    if isinstance(found, Described):
        for name in ("column", "type", "null", "key"):
            table.add_column(name)
        for column in found.table.columns:
            key = "key" if column.name in found.table.primary_key else ""
            null = "null" if column.nullable else ""
            table.add_row(Text(column.name), Text(column.source_type), null, key)
    else:
        table.add_column("table")
        table.add_column("columns", justify="right")
        for one in found.source.tables:
            table.add_row(Text(str(one.table)), str(len(one.columns)))
    console.print(table)
    if isinstance(found, Described):
        for problem in found.features:
            console.print(
                Text.assemble((problem.name, "bold"), f"  {problem.description}"), soft_wrap=True
            )
            console.print(Text(f"      {problem.suggestion}"), soft_wrap=True)
