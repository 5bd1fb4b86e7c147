"""Puts the commands together under ``headrace``.

Each command imports what it needs when it is called, so that ``headrace --help`` answers at once.
"""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headrace.cli.activity import activity
from headrace.cli.adopt import adopt
from headrace.cli.api import api
from headrace.cli.assess import assess
from headrace.cli.consume import consume
from headrace.cli.dead_letters import dead_letters
from headrace.cli.demo import demo
from headrace.cli.draft import draft, namespace
from headrace.cli.dump import dump
from headrace.cli.explain import explain
from headrace.cli.export import export
from headrace.cli.groups import group as groups
from headrace.cli.lineage import lineage
from headrace.cli.log import log
from headrace.cli.logs import logs
from headrace.cli.maintain import maintain
from headrace.cli.metrics import metrics
from headrace.cli.preflight import preflight
from headrace.cli.refusals import naming_refusals
from headrace.cli.relay import relay
from headrace.cli.replicators import (
    audit,
    delete,
    deploy,
    pause,
    replicators,
    resume,
    start,
    stop,
)
from headrace.cli.resync import resync
from headrace.cli.rewind import rewind
from headrace.cli.run import run
from headrace.cli.runtime import runtime
from headrace.cli.schema import schema
from headrace.cli.serve import serve
from headrace.cli.source import source
from headrace.cli.status import status
from headrace.cli.tables import tables
from headrace.cli.tail import tail
from headrace.cli.tap import tap
from headrace.cli.verify import verify
from headrace.cli.version import version

__all__ = ["app"]


class _Commands(TyperGroup):
    """The commands in their order, and behind all others the one that only people with questions need."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run one of them; also what is said of the command line itself may find no room."""
        with naming_refusals():
            return super().main(*args, **kwargs)

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002 - Typer's signature
        """Return the names."""
        return sorted(self.commands, key="version".__eq__)


def _paragraphs(command: object) -> str:
    """Return the help of a command with each paragraph on one line; indented lines stay as they are."""
    lines: list[str] = []
    for line in (inspect.getdoc(command) or "").splitlines():
        if line[:1].strip() and lines and lines[-1][:1].strip():
            lines[-1] += f" {line}"
        else:
            lines.append(line)
    return "\n".join(lines)


def _let_wrap(commands: typer.Typer) -> None:
    """Let the help of all commands wrap where the terminal ends, not where their source does."""
    for command in commands.registered_commands:
        command.help = _paragraphs(command.callback)
    for added in commands.registered_groups:
        if added.typer_instance is not None:
            _let_wrap(added.typer_instance)


app = typer.Typer(
    cls=_Commands,
    name="headrace",
    help=(
        "Keep a correct and fresh copy of a live database.\n\n"
        "headrace reads a database's log, copies the tables in small chunks while they change, "
        "and folds everything into Delta tables with Spark.\n\n"
        "See it work: [bold]headrace demo[/bold]\n\n"
        "Use it: write a file with name, source and target, then\n"
        "[bold]headrace preflight FILE[/bold], [bold]headrace run FILE[/bold], "
        "[bold]headrace verify FILE[/bold]\n\n"
        "Look after many: [bold]headrace serve[/bold], then [bold]headrace deploy FILE --start[/bold]"
    ),
    epilog=(
        "What an error means: [bold]headrace explain NAME[/bold]. Its traceback: set HEADRACE_DEBUG=1."
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _versions(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def headrace(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_versions,
            is_eager=True,
            help="Print the versions, as [bold]headrace version[/bold] does.",
        ),
    ] = False,
) -> None:
    """Begin every command line."""


for command in (
    *(demo, tables, assess, preflight, run, relay, tail, consume),
    *(status, metrics, activity, lineage, verify, resync, adopt, maintain, export, explain),
    *(
        serve,
        deploy,
        start,
        stop,
        pause,
        resume,
        rewind,
        delete,
        replicators,
        logs,
        audit,
        api,
        version,
    ),
):
    app.command()(command)
for name, group in (
    *(("dump", dump), ("log", log), ("schema", schema), ("tap", tap), ("group", groups)),
    *(("draft", draft), ("namespace", namespace), ("dead-letters", dead_letters)),
    *(("runtime", runtime), ("source", source)),
):
    app.add_typer(group, name=name)
_let_wrap(app)


if __name__ == "__main__":
    app()
