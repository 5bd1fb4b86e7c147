"""How preflight's findings look."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from headrace.cli.output import console
from headrace.sources.base import Finding, Severity

__all__ = ["show_findings"]


def show_findings(findings: Sequence[Finding]) -> None:
    """Print findings, errors first; statements stand on lines of their own for copying."""
    for finding in sorted(findings, key=lambda f: f.severity is not Severity.ERROR):
        bad = finding.severity is Severity.ERROR
        console.print(
            Text.assemble(
                (finding.severity.value.lower(), "bold red" if bad else "bold yellow"),
                " ",
                (finding.name, "bold"),
                f"  {finding.description}",
            ),
            soft_wrap=True,
        )
        console.print(Text(f"      {finding.suggestion}"), soft_wrap=True)
