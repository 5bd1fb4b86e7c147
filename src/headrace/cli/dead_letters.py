"""``headrace dead-letters``: changes that a table did not take."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.output import ConfigFile, console, errors_without_traceback

if TYPE_CHECKING:
    from headrace.changelog.dead_letters import DeadLetter
    from headrace.replicator.dead_letters import DeadLetters

__all__ = ["dead_letters"]

dead_letters = typer.Typer(
    help=(
        "Look after changes that a table did not take.\n\n"
        "A table with [bold]undeliverable: set_aside[/bold] puts a transaction that it will never take aside and goes "
        "on. It is outside the frontier until its letters are replayed or discarded. All of it works whether or not "
        "the replicator runs.\n\n"
        "[bold]Examples[/bold]\n\n"
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
Letters = Annotated[
    list[str] | None, typer.Argument(metavar="[LETTER]...", help="Names of letters.")
]
OfTable = Annotated[str | None, typer.Option("--table", help="All that wait of schema.table.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@dead_letters.command(name="list")
@errors_without_traceback
def list_(
    file: ConfigFile,
    table: Annotated[str | None, typer.Option(help="Only of schema.table.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Those that were replayed or discarded, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the letters, with what their tables refused them with.

    [bold]Example[/bold]  headrace dead-letters list shop.yaml --table public.orders
    """
    with _opened(file) as letters:
        found = letters.all(table, ended=every)
    if as_json:
        typer.echo(json.dumps([letter.to_json() for letter in found], indent=2))
    elif not found:
        console.print("no dead letter waits" if not every else "nothing was ever put aside")
    for letter in found if not as_json else ():
        _tell(letter)


@dead_letters.command()
@errors_without_traceback
def show(
    file: ConfigFile,
    letter: Letter,
    rows: Annotated[
        bool, typer.Option("--rows", help="Its changes, one JSON object a line: they hold values.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one letter, or its changes.

    [bold]Example[/bold]  headrace dead-letters show shop.yaml public.orders@81 --rows
    """
    with _opened(file) as letters:
        found = letters.show(letter)
        if rows:
            for line in letters.rows(letter):
                typer.echo(json.dumps(line, ensure_ascii=False))
        elif as_json:
            typer.echo(json.dumps(found.to_json(), indent=2))
        else:
            _tell(found)
            console.print(f"  next step: {found.error['next_step']}", soft_wrap=True, markup=False)


@dead_letters.command()
@errors_without_traceback
def replay(file: ConfigFile, letter: Letters = None, table: OfTable = None) -> None:
    """Read the rows of letters from the source again, as they are now; first see to what refused them.

    [bold]Examples[/bold]
      headrace dead-letters replay shop.yaml public.orders@81
      headrace dead-letters replay shop.yaml --table public.orders
    """
    _each(file, letter, table, lambda letters, name: letters.replay(name))


@dead_letters.command()
@errors_without_traceback
def discard(file: ConfigFile, letter: Letters = None, table: OfTable = None) -> None:
    """Do without the changes of letters: they are deleted, and the tables count as whole again.

    [bold]Example[/bold]  headrace dead-letters discard shop.yaml public.orders@81
    """
    _each(file, letter, table, lambda letters, name: letters.discard(name))


def _opened(file: Path) -> DeadLetters:
    from headrace.replicator import config_file
    from headrace.replicator.dead_letters import DeadLetters

    return DeadLetters(config_file.load(file))


def _each(
    file: Path,
    names: list[str] | None,
    table: str | None,
    do: Callable[[DeadLetters, str], DeadLetter],
) -> None:
    from headrace.errors import ConfigError

    if bool(names) is (table is not None):
        raise ConfigError(
            "dead-letters: either names or --table say which.", next_step="give one of the two."
        )
    with _opened(file) as letters:
        chosen = names or [letter.letter_id for letter in letters.all(table)]
        for name in chosen:
            _tell(do(letters, name))
    if not chosen:
        console.print("no dead letter waits")


def _tell(letter: DeadLetter) -> None:
    by = f" by request {letter.request}" if letter.request else ""
    console.print(
        f"{letter.letter_id} {letter.state.value}{by}: {letter.rows} changes, {letter.error['name']}: "
        f"{letter.error['message']}",
        soft_wrap=True,
        markup=False,
        highlight=False,
    )
