"""``headrace run``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from headrace.cli.output import (
    EXIT_INTERRUPTED,
    ConfigFile,
    console,
    errors_without_traceback,
    notes,
)

__all__ = ["run"]


@errors_without_traceback
def run(
    file: ConfigFile,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Copy what is missing, apply everything up to now, and end: for cron and tests.",
        ),
    ] = False,
) -> None:
    """Start a replicator and look after it until Ctrl-C.

    Copies every table in chunks while it changes, then keeps it fresh. What dies is started again;
    what needs a person stops everything, with the reason. Nothing is lost by stopping at any time.

    Exit code: 0 when asked to end, 1 when preflight found something, 2 on an error; 130 when it was asked to end before
    it had done what --once asks for.

    [bold]Examples[/bold]
      headrace run shop.yaml
      headrace run shop.yaml --once && headrace verify shop.yaml
    """
    from headrace.cli.findings import show_findings
    from headrace.cli.live import Display
    from headrace.cli.refusals import pass_over_no_room
    from headrace.errors import PreflightFailed
    from headrace.replicator import config_file, runner
    from headrace.replicator.run import Run, failure_noted, note_end
    from headrace.sources.base import Severity

    # What it says may go into a file on the disk whose fullness the replicator waits out.
    pass_over_no_room()
    config = config_file.load(file)
    with failure_noted(config):
        findings = runner.preflight(config)
    show_findings(findings)
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        described = " ".join(error.description for error in errors)
        remedies = " ".join(error.suggestion for error in errors)
        note_end(config, PreflightFailed(described, next_step=remedies))
        raise typer.Exit(1)
    with (
        failure_noted(config),
        Display(console, config.name) as display,
        Run(file, config, once=once) as running,
    ):
        running.end_on_signals()
        while running.turn():
            display.show(running.picture, running.note)
        display.show(running.picture, running.note)
    note_end(config)
    if not once:
        return
    if not running.is_done:
        notes.print("ended before all was there; the next run goes on from here")
        raise typer.Exit(EXIT_INTERRUPTED)
    console.print(
        Text.assemble(("done", "bold green"), f": up to SCN {running.picture.frontier_scn}")
    )
