"""What all commands share: the consoles, the FILE argument, and how an error looks."""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.text import Text

from headrace.errors import ConfigError, HeadraceError

__all__ = [
    "EXIT_ERROR",
    "EXIT_INTERRUPTED",
    "MOST_SECONDS",
    "ConfigFile",
    "a_number",
    "console",
    "errors_without_traceback",
    "notes",
    "show_error",
]

P = ParamSpec("P")
R = TypeVar("R")


class _Notes(Console):
    """The standard error, whose reader may go while another one still takes the output."""

    def on_broken_pipe(self) -> None:
        """Go on without a reader; Rich would end the thread that speaks, and let the *output* go nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)


# Names come from databases: one with brackets is no markup.
console = Console(highlight=False, markup=False)
notes = _Notes(stderr=True, highlight=False, markup=False)
"""What is said beside a command's output: errors, and how far it is."""

ConfigFile = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="The replicator's configuration, YAML or JSON."),
]

MOST_SECONDS = 1e9
"""Thirty years: clocks of the system hold more, and nobody waits for that."""
EXIT_ERROR = 2
EXIT_INTERRUPTED = 130


def a_number(value: float | None) -> float | None:
    """Refuse a float that is none and so passes every bound; for options."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is not a number.")
    return value


def show_error(error: HeadraceError) -> None:
    """Print what happened to which object, and what to do now."""
    notes.print(
        Text.assemble(("error ", "bold red"), (type(error).__name__, "bold"), ": ", error.message),
        soft_wrap=True,
    )
    if error.next_step:
        notes.print(Text.assemble(("next step ", "bold"), error.next_step), soft_wrap=True)


def errors_without_traceback(command: Callable[P, R]) -> Callable[P, R]:
    """Make a command end with exit code 2 and a readable message on our own errors."""

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except HeadraceError as error:
            if os.environ.get("HEADRACE_DEBUG"):
                raise
            show_error(error)
            raise typer.Exit(EXIT_ERROR) from None
        except ModuleNotFoundError as error:
            if os.environ.get("HEADRACE_DEBUG") or _is_ours(error):
                raise
            show_error(_light(error))
            raise typer.Exit(EXIT_ERROR) from None
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None

    return guarded


def _is_ours(error: ModuleNotFoundError) -> bool:
    return (error.name or "").partition(".")[0] == __name__.partition(".")[0]


def _light(error: ModuleNotFoundError) -> ConfigError:
    """Return what to say to those who installed only what consumers need."""
    return ConfigError(
        f"This command needs the Python package {error.name}, which is not installed.",
        next_step="pip install 'headrace[platform]' (with `demo`, `duckdb` or `connect` for these).",
    )
