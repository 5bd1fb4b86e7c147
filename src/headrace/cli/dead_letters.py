"""``headrace dead-letters``: changes that a table did not take."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.letters import Letters, letters_at, letters_of
from headrace.cli.output import console, errors_without_traceback
from headrace.cli.server import (
    DEFAULT_URL,
    AsJson,
    Authority,
    FileOrName,
    Namespace,
    Server,
    ServerUrl,
    replicator_named,
)
from headrace.plural import counted

__all__ = ["dead_letters"]

dead_letters = typer.Typer(
    help=(
        "Look after changes that a table did not take.\n\n"
        "A table with [bold]undeliverable: set_aside[/bold] puts a transaction that it will never take aside and goes "
        "on. It is outside the frontier until its letters are replayed or discarded. All of it works whether or not "
        "the replicator runs.\n\n"
        "[bold]Examples[/bold]\n\n"
        "  headrace dead-letters list shop\n\n"
        "  headrace dead-letters list shop.yaml\n\n"
        "  headrace dead-letters show shop.yaml public.orders@81 --rows\n\n"
        "  headrace dead-letters replay shop.yaml public.orders@81\n\n"
        "  headrace dead-letters discard shop.yaml public.orders@81"
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Letter = Annotated[
    str, typer.Argument(metavar="LETTER", help="Its name: the table, @, and the transaction's SCN.")
]
Names = Annotated[list[str] | None, typer.Argument(metavar="[LETTER]...", help="Names of letters.")]
OfTable = Annotated[str | None, typer.Option("--table", help="All that wait of schema.table.")]


@dead_letters.command(name="list")
@errors_without_traceback
def list_(
    file: FileOrName,
    table: Annotated[str | None, typer.Option(help="Only of schema.table.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Those that were replayed or discarded, too.")
    ] = False,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """List the letters, with what their tables refused them with.

    [bold]Example[/bold]  headrace dead-letters list shop.yaml --table public.orders
    """
    with _opened(file, server, namespace, ca) as letters:
        found = letters.all(table, ended=every)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    elif not found:
        console.print("no dead letter waits" if not every else "nothing was ever put aside")
    for letter in found if not as_json else ():
        _tell(letter)


@dead_letters.command()
@errors_without_traceback
def show(
    file: FileOrName,
    letter: Letter,
    rows: Annotated[
        bool, typer.Option("--rows", help="Its changes, one JSON object a line: they hold values.")
    ] = False,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Show one letter, or its changes.

    [bold]Example[/bold]  headrace dead-letters show shop.yaml public.orders@81 --rows
    """
    with _opened(file, server, namespace, ca) as letters:
        found = letters.show(letter)
        if rows:
            for line in letters.rows(letter):
                typer.echo(json.dumps(line, ensure_ascii=False))
        elif as_json:
            typer.echo(json.dumps(found, indent=2))
        else:
            _tell(found)
            step = found["error"]["next_step"]
            console.print(f"  next step: {step}", soft_wrap=True)


@dead_letters.command()
@errors_without_traceback
def replay(
    file: FileOrName,
    letter: Names = None,
    table: OfTable = None,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
) -> None:
    """Read the rows of letters from the source again, as they are now; first see to what refused them.

    [bold]Examples[/bold]
      headrace dead-letters replay shop.yaml public.orders@81
      headrace dead-letters replay shop.yaml --table public.orders
    """
    with _opened(file, server, namespace, ca) as letters:
        _each(letters, letter, table, letters.replay)


@dead_letters.command()
@errors_without_traceback
def discard(
    file: FileOrName,
    letter: Names = None,
    table: OfTable = None,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
) -> None:
    """Do without the changes of letters: they are deleted, and the tables count as whole again.

    [bold]Example[/bold]  headrace dead-letters discard shop.yaml public.orders@81
    """
    with _opened(file, server, namespace, ca) as letters:
        _each(letters, letter, table, letters.discard)


def _opened(
    file: str, server: str, namespace: str, ca: Path | None
) -> contextlib.AbstractContextManager[Letters]:
    name = replicator_named(file)
    if name is None:
        return letters_of(Path(file))
    return contextlib.nullcontext(letters_at(Server(server, namespace, ca), name))


def _each(
    letters: Letters,
    names: list[str] | None,
    table: str | None,
    do: Callable[[str], dict[str, Any]],
) -> None:
    from headrace.errors import ConfigError

    if bool(names) is (table is not None):
        raise ConfigError(
            "dead-letters: either names or --table say which.", next_step="give one of the two."
        )
    chosen = names or [letter["letter"] for letter in letters.all(table, ended=False)]
    for name in chosen:
        _tell(do(name))
    if not chosen:
        console.print("no dead letter waits")


def _tell(letter: dict[str, Any]) -> None:
    by = f" by request {letter['request']}" if letter["request"] else ""
    error, changes = letter["error"], counted(letter["rows"], "change")
    console.print(
        f"{letter['letter']} {letter['state']}{by}: {changes}, {error['name']}: {error['message']}",
        soft_wrap=True,
    )
