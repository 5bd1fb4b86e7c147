"""What a newer version of the source's table will do to the columns of its target, told without doing it.

Source: `headrace.lake.evolution`, whose rules these are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from headrace.lake.evolution import can_widen, numbers_of
from headrace.lake.snapshot import Snapshot
from headrace.model.change import table_arrow_schema
from headrace.model.schema import TableSchema, render_type
from headrace.model.succession import Numbers, successors

__all__ = ["ChangeKind", "ColumnChange", "column_changes", "planned_changes"]


class ChangeKind(Enum):
    """What happens to one column of the target."""

    ADD = "add"
    """It comes; rows that are there have null in it, or are read again for their default."""
    DROP = "drop"
    """It goes; older versions of the table keep it."""
    RENAME = "rename"
    """It keeps its values under another name."""
    WIDEN = "widen"
    """It takes a wider type."""
    REFUSED = "refused"
    """The target cannot follow: the table waits until somebody decides."""


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """One change of one column.

    Attributes:
        kind: what happens.
        column: its name at the target; of one that comes, its name.
        detail: the new name, the types, or why it is refused.
    """

    kind: ChangeKind
    column: str
    detail: str


def planned_changes(held: Snapshot, schema: TableSchema) -> list[ColumnChange]:
    """Return what brings a target table to ``schema``, nothing when its columns are the same.

    Args:
        held: the target table as it is.
        schema: the source's table now, with the numbers of its columns where they are known.
    """
    return column_changes(held.schema, numbers_of(held), schema)


def column_changes(held: pa.Schema, numbers: Numbers, schema: TableSchema) -> list[ColumnChange]:
    """Return what brings columns to ``schema``, whatever kind of target has them.

    Args:
        held: the columns as they are.
        numbers: the source's own of them, as far as they were told.
        schema: the source's table now, likewise.
    """
    names = successors(held.names, schema.names, numbers, schema.numbers)
    if names is None:
        reason = "dropped or renamed at the source, nobody knows which"
        unknown = [name for name in held.names if name not in schema.names] or held.names
        return [ColumnChange(ChangeKind.REFUSED, name, reason) for name in unknown]
    found = []
    wanted = table_arrow_schema(schema)
    for name in held.names:
        later = names.get(name)
        if later is None:
            found.append(ColumnChange(ChangeKind.DROP, name, "older versions keep it"))
            continue
        if later != name:
            found.append(ColumnChange(ChangeKind.RENAME, name, f"to {later}"))
        old, new = held.field(name).type, wanted.field(later).type
        if old != new:
            kind = ChangeKind.WIDEN if can_widen(old, new) else ChangeKind.REFUSED
            detail = f"from {render_type(old)} to {render_type(new)}"
            found.append(ColumnChange(kind, name, detail))
    fresh = [field for field in wanted if field.name not in names.values()]
    found += [ColumnChange(ChangeKind.ADD, f.name, render_type(f.type)) for f in fresh]
    return found
