"""How the source's tables differ from their targets right now: what the next change of each will do to its columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from headrace.lake.delta_log import DeltaTable
from headrace.lake.ledger import table_path
from headrace.lake.modes import mode_of, shaped
from headrace.lake.planned import ChangeKind, ColumnChange, planned_changes
from headrace.lake.settings import SettingsByTable, TableSettings, settings_for
from headrace.model.schema import TableSchema

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
    tables: Iterable[TableSchema], lake: Path, given: SettingsByTable = ()
) -> list[TableDiff]:
    """Return how each of the source's tables differs from its target; changes nothing.

    Args:
        tables: of the source, as they are now.
        lake: folder of the target tables.
        given: what was asked for single tables; columns that the target makes for itself are not looked at.

    Raises:
        TargetError: a target table cannot be read.
    """
    return [_diff(schema, lake, settings_for(schema.table, given)) for schema in tables]


def _diff(schema: TableSchema, lake: Path, settings: TableSettings) -> TableDiff:
    held = DeltaTable(table_path(lake, schema.table)).latest()
    if held is None:
        return TableDiff(str(schema.table), "new")
    own = settings.of_its_own(held)
    alike = [name for name in held.schema.names if name not in own]
    seen = shaped(settings.renamed(settings.alike(schema)), mode_of(held))
    changes = tuple(planned_changes(replace(held, schema=held.schema_of(alike)), seen))
    return TableDiff(str(schema.table), "changes" if changes else "same", changes)
