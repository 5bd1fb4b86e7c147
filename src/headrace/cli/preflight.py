"""``headrace preflight``."""

from __future__ import annotations

import typer

from headrace.cli.output import ConfigFile, console, errors_without_traceback

__all__ = ["preflight"]


@errors_without_traceback
def preflight(file: ConfigFile) -> None:
    """Check the configuration, the server, every table and the target; change nothing.

    An object store gets one small object, which is removed again.

    Lists everything that stands in the way at once, each with the statement that cures it.

    Exit code: 0 when `run` may start, 1 when something must be done first, 2 on an error.

    [bold]Example[/bold]  headrace preflight shop.yaml
    """
    from headrace.cli.findings import show_findings
    from headrace.replicator import config_file, runner
    from headrace.sources.base import Severity

    findings = runner.preflight(config_file.load(file))
    show_findings(findings)
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise typer.Exit(1)
    console.print("[bold green]ready[/bold green]: headrace run", str(file))
