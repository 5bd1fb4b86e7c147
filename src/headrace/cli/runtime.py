"""``headrace runtime``: how the capture of a control plane's replicator does, in DBLog's words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.output import console, errors_without_traceback
from headrace.cli.server import (
    DEFAULT_URL,
    AsJson,
    Authority,
    Name,
    Namespace,
    Server,
    ServerUrl,
    printed,
)

__all__ = ["runtime"]

runtime = typer.Typer(
    help=(
        "See how the capture of a control plane's replicator does: flow, requests, table versions, row changes.\n\n"
        "[bold]Examples[/bold]\n\n"
        "  headrace runtime show shop\n\n"
        "  headrace runtime schema-issues shop\n\n"
        "  headrace runtime events shop --table public.orders"
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@runtime.command()
@errors_without_traceback
def show(
    name: Name,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Show the capture at a glance.

    [bold]Example[/bold]  headrace runtime show shop
    """
    _tell(name, "runtime", server, namespace, ca, as_json)


@runtime.command()
@errors_without_traceback
def health(
    name: Name,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Say whether the capture does its work.

    [bold]Example[/bold]  headrace runtime health shop
    """
    _tell(name, "runtime/health", server, namespace, ca, as_json)


@runtime.command()
@errors_without_traceback
def status(
    name: Name,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Show the capture in full: its flow, its requests, its changes.

    [bold]Example[/bold]  headrace runtime status shop
    """
    _tell(name, "runtime/status", server, namespace, ca, as_json)


@runtime.command()
@errors_without_traceback
def schemas(
    name: Name,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Show the tables' versions: what the log follows, and what was seen last.

    [bold]Example[/bold]  headrace runtime schemas shop
    """
    _tell(name, "runtime/schemas", server, namespace, ca, as_json)


@runtime.command("schema-issues")
@errors_without_traceback
def schema_issues(
    name: Name,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Show which tables have to be read anew for their shape, and whose shape stands in the way.

    [bold]Example[/bold]  headrace runtime schema-issues shop
    """
    _tell(name, "runtime/schema-issues", server, namespace, ca, as_json)


@runtime.command()
@errors_without_traceback
def metrics(
    name: Name,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Show the counters of capture, dumps and requests.

    [bold]Example[/bold]  headrace runtime metrics shop
    """
    _tell(name, "metrics", server, namespace, ca, as_json)


@runtime.command()
@errors_without_traceback
def events(
    name: Name,
    table: Annotated[
        str, typer.Option("--table", help="Only of schema.table.", show_default=False)
    ] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many.")] = 20,
    counts: Annotated[
        bool, typer.Option("--counts", help="How many there were instead, per table and stage.")
    ] = False,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Show the newest row changes that the tap told, newest first; the replicator needs tap: {enabled: true}.

    [bold]Examples[/bold]
      headrace runtime events shop --table public.orders --limit 5
      headrace runtime events shop --counts
    """
    from urllib.parse import quote

    if counts:
        _tell(name, "events/summary", server, namespace, ca, as_json)
        return
    page = f"events/tables/{quote(table, safe='')}" if table else "events/recent"
    _tell(name, page, server, namespace, ca, as_json, limit=limit)


def _tell(
    name: str,
    page: str,
    server: str,
    namespace: str,
    ca: Path | None,
    as_json: bool,
    **query: Any,
) -> None:
    """Print a page below ``api/v1`` of a replicator."""
    from headrace.cli.plain_view import plain_view

    told = Server(server, namespace, ca).within("GET", f"replicators/{name}/api/v1/{page}", **query)
    if as_json:
        printed(told)
    else:
        console.print(plain_view(told))
