"""A problem as an assessment shows it: what is wrong with what, what to do, what it costs, how bad it is.

Out: values, and the JSON of the Replicator's design with the fields that its later versions added.

Source: docs/requirements.md, C96.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headrace.replicator.assess.kinds import CATALOGUE, Group, Kind
from headrace.sources.base import Finding, Severity

__all__ = ["Problem", "errors_in", "from_finding", "in_group", "listed", "to_finding"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem; secrets and values of rows never stand in it.

    Attributes:
        name: of its kind.
        description: the object and what is wrong with it.
        suggestion: what to do; exact SQL or settings where there are any.
        severity: ERROR where nothing starts, or a table stands still, before it is dealt with.
        table: ``schema.table`` that it is about, empty for the whole.
        column: that it is about, empty for the whole table.
        field: place in the configuration, empty where none is to blame.
    """

    name: str
    description: str
    suggestion: str
    severity: Severity = Severity.ERROR
    table: str = ""
    column: str = ""
    field: str = ""

    def __post_init__(self) -> None:
        if self.name not in CATALOGUE:
            raise ValueError(f"{self.name} is no kind of problem")

    @property
    def kind(self) -> Kind:
        """What all problems of the kind have in common."""
        return CATALOGUE[self.name]

    @property
    def is_error(self) -> bool:
        """Whether it must be dealt with before a start."""
        return self.severity is Severity.ERROR

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "name": self.name,
            "description": self.description,
            "suggestion": self.suggestion,
            "impact": self.kind.impact,
            "severity": self.severity.value,
            "table": self.table,
            "column": self.column,
            "field": self.field,
        }


def from_finding(finding: Finding) -> Problem:
    """Return what preflight found as a problem."""
    return Problem(
        finding.name, finding.description, finding.suggestion, finding.severity, finding.table
    )


def to_finding(problem: Problem) -> Finding:
    """Return a problem as preflight shows one."""
    return Finding(
        problem.name, problem.description, problem.suggestion, problem.severity, problem.table
    )


def in_group(problems: Iterable[Problem], group: Group) -> tuple[Problem, ...]:
    """Return the problems of one list, errors first, each once."""
    found = dict.fromkeys(p for p in problems if p.kind.group is group)
    return tuple(sorted(found, key=lambda p: not p.is_error))


def errors_in(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return those that must be dealt with before a start."""
    return tuple(p for p in problems if p.is_error)


def listed(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    """Return problems as plain values."""
    return [problem.to_json() for problem in problems]
