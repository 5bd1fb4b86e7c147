"""``headrace preflight``."""

from __future__ import annotations

import json

import typer
from rich.text import Text

from headrace.cli.output import ConfigFile, console, errors_without_traceback
from headrace.cli.server import AsJson

__all__ = ["preflight"]


@errors_without_traceback
def preflight(file: ConfigFile, as_json: AsJson = False) -> None:
    """Check the configuration, the server, every table, the target and the state folder; change nothing.

    An object store gets one small object, which is removed again.

    Lists everything that stands in the way at once, each with the statement that cures it.

    Exit code: 0 when `run` may start, 1 when something must be done first, 2 on an error.

    [bold]Example[/bold]  headrace preflight shop.yaml
    """
    from headrace.cli.findings import show_findings
    from headrace.replicator import config_file
    from headrace.replicator.assess.pipeline import obstacles
    from headrace.sources.base import Severity

    findings = obstacles(config_file.load(file))
    if as_json:
        plain = [
            {
                "name": finding.name,
                "severity": finding.severity.value,
                "description": finding.description,
                "suggestion": finding.suggestion,
            }
            for finding in findings
        ]
        typer.echo(json.dumps(plain, indent=2))
    else:
        show_findings(findings)
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise typer.Exit(1)
    if not as_json:
        console.print(Text.assemble(("ready", "bold green"), f": headrace run {file}"))
