"""``headrace log``: hold the delivery of the source's log back, and let it go on."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.opened import requests_of
from headrace.cli.output import ConfigFile, console, errors_without_traceback

__all__ = ["log"]

log = typer.Typer(
    help=(
        "Pause or throttle the delivery of the source's log.\n\n"
        "What is held back stays at the source, whose disk must have room for it; nothing is lost. Dumps wait too "
        "while the log is paused: their windows close by marks in it. headrace status shows both.\n\n"
        "[bold]Examples[/bold]\n\n"
        "  headrace log pause shop.yaml\n\n"
        "  headrace log resume shop.yaml\n\n"
        "  headrace log pace shop.yaml --rows-per-second 5000"
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@log.command()
@errors_without_traceback
def pause(file: ConfigFile) -> None:
    """Stop taking changes from the source, until resume.

    [bold]Example[/bold]  headrace log pause shop.yaml
    """
    _set(file, log_paused=True)
    console.print("paused: the source keeps its log; headrace log resume FILE goes on")


@log.command()
@errors_without_traceback
def resume(file: ConfigFile) -> None:
    """Take changes from the source again, from where it stopped.

    [bold]Example[/bold]  headrace log resume shop.yaml
    """
    _set(file, log_paused=False)
    console.print("resumed")


@log.command()
@errors_without_traceback
def pace(
    file: ConfigFile,
    rows_per_second: Annotated[
        float, typer.Option(help="Most change rows delivered per second; 0 lifts the limit.")
    ],
) -> None:
    """Deliver no more than so many change rows per second, on average.

    A transaction goes out whole; the pause after it makes up for its size.

    [bold]Example[/bold]  headrace log pace shop.yaml --rows-per-second 5000
    """
    _set(file, log_rows_per_s=rows_per_second)
    limit = f"at most {rows_per_second:,.0f} rows/s" if rows_per_second else "no limit"
    console.print(f"log delivery: {limit}")


def _set(file: ConfigFile, **settings: float | bool) -> None:
    with requests_of(file) as requests:
        requests.set_pace(**settings)
