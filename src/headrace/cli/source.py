"""``headrace source``: what a source of type trigger has in the database."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from headrace.cli.output import ConfigFile, console, errors_without_traceback
from headrace.cli.server import AsJson

if TYPE_CHECKING:
    from headrace.sources.trigger.ports import TriggerDatabase

__all__ = ["source"]

source = typer.Typer(
    help="Look after what a source has in the database.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

triggers = typer.Typer(
    help=(
        "Show, make or remove the triggers and change tables of a source of type trigger.\n\n"
        "headrace run makes what is missing by itself, where its role may. Else somebody who may runs what show "
        "prints, or install with a file that has his URL and the replicator's name.\n\n"
        "[bold]Examples[/bold]\n\n"
        "  headrace source triggers show shop.yaml | psql shop\n\n"
        "  headrace source triggers install shop.yaml\n\n"
        "  headrace source triggers remove shop.yaml"
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
source.add_typer(triggers, name="triggers")


@triggers.command()
@errors_without_traceback
def show(file: ConfigFile, as_json: AsJson = False) -> None:
    """Print the SQL of change tables, functions, triggers and grants; change nothing.

    [bold]Example[/bold]  headrace source triggers show shop.yaml | psql shop    (or | mariadb)
    """
    script = _opened(file).script()
    typer.echo(json.dumps({"sql": script}) if as_json else script)


@triggers.command()
@errors_without_traceback
def install(file: ConfigFile, as_json: AsJson = False) -> None:
    """Make the change tables, and the triggers of every captured table that lacks one.

    Each table is locked against writers for a moment; where writers hold it for longer than two seconds the command
    gives up, and may be repeated.

    [bold]Example[/bold]  headrace source triggers install shop.yaml
    """
    _tell("made on", [str(table) for table in _opened(file).install()], as_json)


@triggers.command()
@errors_without_traceback
def remove(file: ConfigFile, as_json: AsJson = False) -> None:
    """Take the replicator's place away, and the triggers that no other replicator needs.

    With the last replicator the change tables go too. One that is removed begins anew, with a dump, if it is
    ever started again: headrace resync FILE --force.

    [bold]Example[/bold]  headrace source triggers remove shop.yaml
    """
    _tell("removed from", [str(table) for table in _opened(file).remove()], as_json)


def _opened(file: ConfigFile) -> TriggerDatabase:
    from headrace.replicator import config_file
    from headrace.replicator.databases import open_triggers

    return open_triggers(config_file.load(file))


def _tell(what: str, tables: list[str], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"tables": tables}))
    else:
        console.print(f"triggers {what}: {', '.join(tables) or 'no table'}")
