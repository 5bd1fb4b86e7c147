"""How the source's tables differ from their targets right now: what the next change of each will do to its columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from headrace.lake.planned import ChangeKind, ColumnChange
from headrace.model.schema import TableSchema
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


def schema_diff(tables: Iterable[TableSchema], replicas: Replicas) -> list[TableDiff]:
    """Return how each of the source's tables differs from its target; changes nothing.

    Args:
        tables: of the source, as they are now.
        replicas: the target tables.

    Raises:
        TargetError: a target table cannot be read.
    """
    return [_diff(schema, replicas) for schema in tables]


def _diff(schema: TableSchema, replicas: Replicas) -> TableDiff:
    changes = replicas.changes(schema)
    if changes is None:
        return TableDiff(str(schema.table), "new")
    return TableDiff(str(schema.table), "changes" if changes else "same", tuple(changes))
