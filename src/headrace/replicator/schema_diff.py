"""How the source's tables differ from their targets right now: what the next change of each will do to its columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from headrace.lake.planned import ChangeKind, ColumnChange
from headrace.model.schema import TableSchema
from headrace.replicator.assess.problems import Problem
from headrace.replicator.replicas import Replicas

__all__ = ["TableDiff", "schema_diff"]


@dataclass(frozen=True, slots=True)
class TableDiff:
    """One table.

    Attributes:
        table: ``schema.name``.
        state: ``new``: the target has no such table yet; ``same``; or ``changes``.
        changes: column by column.
    """

    table: str
    state: Literal["new", "same", "changes"]
    changes: tuple[ColumnChange, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether the target cannot follow."""
        return any(change.kind is ChangeKind.REFUSED for change in self.changes)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        changes = [
            {"change": change.kind.value, "column": change.column, "detail": change.detail}
            for change in self.changes
        ]
        return {"table": self.table, "state": self.state, "changes": changes}


def schema_diff(
    tables: Iterable[TableSchema],
    replicas: Replicas,
    names: Callable[[TableSchema], Iterable[Problem]],
) -> list[TableDiff]:
    """Return how each of the source's tables differs from its target; changes nothing.

    Args:
        tables: of the source, as they are now.
        replicas: the target tables.
        names: gives the names of a table that the target does not take.

    Raises:
        TargetError: a target table cannot be read.
    """
    return [_diff(schema, replicas, tuple(_refused(names(schema)))) for schema in tables]


def _refused(problems: Iterable[Problem]) -> Iterator[ColumnChange]:
    for problem in problems:
        yield ColumnChange(
            ChangeKind.REFUSED, problem.column, f"{problem.description} {problem.suggestion}"
        )


def _diff(schema: TableSchema, replicas: Replicas, refused: tuple[ColumnChange, ...]) -> TableDiff:
    table, changes = str(schema.table), replicas.changes(schema)
    if changes is None:
        return TableDiff(table, "new", refused)
    # One refusal of a column is enough, and what is refused does not come.
    known = {change.column for change in changes if change.kind is ChangeKind.REFUSED}
    more = {change.column: change for change in refused if change.column not in known}
    told = (*(change for change in changes if change.column not in more), *more.values())
    return TableDiff(table, "changes" if told else "same", told)
