"""``headrace draft`` and ``headrace namespace``: what a control plane keeps beside its replicators."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.output import console, errors_without_traceback
from headrace.cli.server import (
    DEFAULT_URL,
    AsJson,
    Authority,
    Namespace,
    Server,
    ServerUrl,
    printed,
)

__all__ = ["draft", "namespace"]

_SETTINGS: dict[str, Any] = {
    "no_args_is_help": True,
    "rich_markup_mode": "rich",
    "context_settings": {"help_option_names": ["-h", "--help"]},
}

draft = typer.Typer(
    help=(
        "Keep unfinished configurations in a control plane, and see what stands in their way.\n\n"
        "[bold]Examples[/bold]\n\n"
        "  headrace draft put d1 shop.yaml --label 'The shop'\n\n"
        "  headrace draft assess d1\n\n"
        "  headrace deploy --draft d1 --name shop"
    ),
    **_SETTINGS,
)
namespace = typer.Typer(
    help=(
        "Keep replicators and drafts of several teams apart; for admins.\n\n"
        "[bold]Examples[/bold]\n\n"
        "  headrace namespace make sales\n\n"
        "  headrace replicators --namespace sales"
    ),
    **_SETTINGS,
)

Draft = Annotated[str, typer.Argument(metavar="DRAFT", help="The draft's name.")]
Table = Annotated[str, typer.Option("--table", help="One table, schema.name.")]


@draft.command()
@errors_without_traceback
def put(
    name: Draft,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML or JSON, finished or not.")],
    label: Annotated[str, typer.Option(help="For people.")] = "",
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Make a draft, or overwrite one; secrets stay references.

    [bold]Example[/bold]  headrace draft put d1 shop.yaml
    """
    from headrace.cli.deployed import as_sent
    from headrace.replicator.document_file import parse
    from headrace.replicator.relative_paths import make_absolute

    asked, document = Server(server, namespace, ca), as_sent(file, parse(file))
    if asked.is_here:
        make_absolute(document, file.absolute().parent)
    shown = asked.within("PUT", f"drafts/{name}", {"label": label, "config": document})
    _tell(shown, as_json, f"draft {name} is kept")


@draft.command(name="list")
@errors_without_traceback
def list_(
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """List the drafts of a namespace.

    [bold]Example[/bold]  headrace draft list
    """
    from headrace.cli.replicators_view import drafts_view

    found = Server(server, namespace, ca).within("GET", "drafts")
    if as_json:
        printed(found)
    else:
        console.print(drafts_view(found))


@draft.command()
@errors_without_traceback
def show(
    name: Draft,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Print a draft as it was put.

    [bold]Example[/bold]  headrace draft show d1
    """
    import yaml

    shown = Server(server, namespace, ca).within("GET", f"drafts/{name}")
    if as_json:
        printed(shown)
    else:
        text = yaml.safe_dump(shown["config"], sort_keys=False, allow_unicode=True)
        typer.echo(text, nl=False)


@draft.command()
@errors_without_traceback
def tables(
    name: Draft,
    table: Table = "",
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """List the tables that a draft selects, or describe one of the source's.

    [bold]Example[/bold]  headrace draft tables d1 --table public.orders
    """
    from headrace.cli.draft_view import tables_view

    asked = Server(server, namespace, ca)
    if table:
        found = asked.within("POST", f"drafts/{name}/describeTable", {"table": table})
    else:
        found = asked.within("POST", f"drafts/{name}/listTables")
    if as_json:
        printed(found)
    else:
        console.print(tables_view(found))


@draft.command()
@errors_without_traceback
def assess(
    name: Draft,
    table: Table = "",
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Say what stands in the way of a draft, or of one of its tables.

    [bold]Example[/bold]  headrace draft assess d1
    """
    from headrace.cli.draft_view import assessed_view

    asked = Server(server, namespace, ca)
    if table:
        found = asked.within("POST", f"drafts/{name}/assessTable", {"table": table})
    else:
        found = asked.within("POST", f"drafts/{name}/assessPipeline")
    if as_json:
        printed(found)
    else:
        console.print(assessed_view(found), soft_wrap=True)


@draft.command(name="delete")
@errors_without_traceback
def delete_draft(
    name: Draft,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Delete a draft.

    [bold]Example[/bold]  headrace draft delete d1
    """
    Server(server, namespace, ca).within("DELETE", f"drafts/{name}")
    _tell({"deleted": name}, as_json, f"draft {name} is deleted")


Which = Annotated[str, typer.Argument(metavar="NAME", help="The namespace's name.")]


@namespace.command(name="list")
@errors_without_traceback
def list_namespaces(
    server: ServerUrl = DEFAULT_URL, ca: Authority = None, as_json: AsJson = False
) -> None:
    """List the namespaces.

    [bold]Example[/bold]  headrace namespace list
    """
    found = Server(server, authority=ca).ask("GET", "/v1/contexts")["namespaces"]
    _tell(found, as_json, "\n".join(found))


@namespace.command()
@errors_without_traceback
def make(
    name: Which, server: ServerUrl = DEFAULT_URL, ca: Authority = None, as_json: AsJson = False
) -> None:
    """Make a namespace.

    [bold]Example[/bold]  headrace namespace make sales
    """
    Server(server, name, ca).ask("PUT", f"/v1/contexts/{name}")
    _tell({"namespace": name}, as_json, f"namespace {name} is there")


@namespace.command(name="delete")
@errors_without_traceback
def delete_namespace(
    name: Which, server: ServerUrl = DEFAULT_URL, ca: Authority = None, as_json: AsJson = False
) -> None:
    """Delete a namespace without replicators, and its drafts.

    [bold]Example[/bold]  headrace namespace delete sales
    """
    Server(server, name, ca).ask("DELETE", f"/v1/contexts/{name}")
    _tell({"deleted": name}, as_json, f"namespace {name} is deleted")


def _tell(value: Any, as_json: bool, text: str) -> None:
    if as_json:
        printed(value)
    else:
        console.print(text)
