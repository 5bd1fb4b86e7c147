"""What a newer version of the source's table does to the columns of its target, told without doing it.

Pure. `headrace.lake.evolution` and the warehouses carry it out.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from headrace.lake.partition_values import fits as partitions_fit
from headrace.lake.policies import DEFAULTS, Dropped, Incompatible, Policies
from headrace.lake.remembered import kept_names, numbers_of
from headrace.lake.snapshot import Snapshot
from headrace.lake.widening import can_widen
from headrace.model.change import table_arrow_schema
from headrace.model.schema import KeyCheck, TableSchema, render_type
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
    KEEP = "keep"
    """The source dropped it; it stays with its values."""
    ASIDE = "aside"
    """It stays with its values under another name, for a new column of the source takes its own."""
    RECOPY = "recopy"
    """Its values do not fit: the table is copied again beside the old one."""
    REFUSED = "refused"
    """The target cannot follow: the table waits until somebody decides."""


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """One change of one column.

    Attributes:
        kind: what happens.
        column: its name at the target; of one that comes, its name.
        detail: the new name, the types, or why it is refused.
        later: the name of one that stays.
        kept: whether it is refused only because a policy asks to keep it.
    """

    kind: ChangeKind
    column: str
    detail: str
    later: str = ""
    kept: bool = False


def planned_changes(
    held: Snapshot, schema: TableSchema, policies: Policies = DEFAULTS
) -> list[ColumnChange]:
    """Return what brings a target table to ``schema``, nothing when its columns are the same.

    Args:
        held: the target table as it is.
        schema: the source's table now, with the numbers of its columns where they are known.
        policies: what happens to columns that cannot live on.
    """
    kept, partitions = kept_names(held), held.partition_columns
    return column_changes(held.schema, numbers_of(held), schema, policies, kept, partitions)


def column_changes(
    held: pa.Schema,
    numbers: Numbers,
    schema: TableSchema,
    policies: Policies = DEFAULTS,
    kept: Collection[str] = (),
    partitions: Collection[str] = (),
) -> list[ColumnChange]:
    """Return what brings columns to ``schema``, whatever kind of target has them.

    Args:
        held: the columns as they are.
        numbers: the source's own of them, as far as they were told.
        schema: the source's table now, likewise.
        policies: what happens to columns that cannot live on; by default they go, or stop the table.
        kept: the columns that the source no longer has.
        partitions: the columns by which it is partitioned; they go with the table only.
    """
    own = [name for name in held.names if name not in kept]
    names = successors(own, schema.names, numbers, schema.numbers)
    if names is None:
        unknown = [name for name in own if name not in schema.names] or own
        if policies.incompatible is Incompatible.RECOPY:
            reason = "dropped or renamed, nobody knows which: the table is copied again"
            return [ColumnChange(ChangeKind.RECOPY, name, reason) for name in unknown]
        reason = "dropped or renamed at the source, nobody knows which"
        return [ColumnChange(ChangeKind.REFUSED, name, reason) for name in unknown]
    plan = _Plan(held, schema, policies, partitions)
    for name in held.names:
        if name in kept:
            plan.stay(name)
        elif (later := names.get(name)) is None:
            plan.gone(name)
        else:
            plan.live_on(name, later)
    fresh = [f for f in table_arrow_schema(schema) if f.name not in plan.followed]
    added = [ColumnChange(ChangeKind.ADD, f.name, render_type(f.type)) for f in fresh]
    return plan.found + added


class _Plan:
    """The changes of one table's columns while they are found.

    Args:
        held: the columns as they are.
        schema: the source's table now.
        policies: what happens to columns that cannot live on.
        partitions: the columns by which it is partitioned.
    """

    def __init__(
        self,
        held: pa.Schema,
        schema: TableSchema,
        policies: Policies,
        partitions: Collection[str],
    ) -> None:
        self._held = held
        self._schema = schema
        self._wanted = table_arrow_schema(schema)
        self._policies = policies
        self._partitions = partitions
        self._source = {name.lower() for name in schema.names}
        self._taken = self._source | {name.lower() for name in held.names}
        self.found: list[ColumnChange] = []
        self.followed: set[str] = set()

    def stay(self, name: str) -> None:
        """Keep a column that was kept before; it gives its name up to one of the source."""
        if not self._refuse(name) and name.lower() in self._source:
            self._aside(name, "the source has another column of that name")

    def gone(self, name: str) -> None:
        """Drop or keep a column that the source dropped."""
        if self._policies.dropped_column is Dropped.DROP:
            if name in self._partitions:
                self._refused_partition(name, "dropped at the source")
            else:
                self.found.append(ColumnChange(ChangeKind.DROP, name, "older versions keep it"))
        elif self._refuse(name):
            return
        elif name.lower() in self._source:
            self._aside(name, "dropped; the source has another column of that name")
        else:
            detail = "dropped at the source, stays with its values (dropped_column: keep)"
            self.found.append(ColumnChange(ChangeKind.KEEP, name, detail, name))

    def live_on(self, name: str, later: str) -> None:
        """Bring a column to its later name and type."""
        old, new = self._held.field(name).type, self._wanted.field(later).type
        detail = f"from {render_type(old)} to {render_type(new)}"
        if name in self._partitions and old != new and not partitions_fit(new):
            self.followed.add(later)
            self._refused_partition(name, detail)
            return
        fits = old == new or can_widen(old, new)
        if not fits and self._policies.incompatible is Incompatible.NEW_COLUMN:
            if not self._refuse(name, in_key=later in self._schema.key):
                self._aside(name, f"{detail} (incompatible: new_column)")
            return
        self.followed.add(later)
        if later != name:
            self.found.append(ColumnChange(ChangeKind.RENAME, name, f"to {later}"))
        if fits and old != new:
            self.found.append(ColumnChange(ChangeKind.WIDEN, name, detail))
        elif not fits and self._policies.incompatible is Incompatible.RECOPY:
            whole = f"{detail}: the table is copied again (incompatible: recopy)"
            self.found.append(ColumnChange(ChangeKind.RECOPY, name, whole))
        elif not fits:
            self.found.append(ColumnChange(ChangeKind.REFUSED, name, detail))

    def _refuse(self, name: str, *, in_key: bool = False) -> bool:
        """Refuse to keep a column where rows would not be told apart with it."""
        reason = "is of the key, which no row can do without," if in_key else ""
        mirror = self._schema.shape is None
        if mirror and self._schema.key_check is not KeyCheck.IMMEDIATE:
            reason = "can be kept only where a key is checked row by row,"
        if reason:
            self.found.append(ColumnChange(ChangeKind.REFUSED, name, reason, kept=True))
        return bool(reason)

    def _refused_partition(self, name: str, why: str) -> None:
        whole = f"{why}, and the table is partitioned by it"
        self.found.append(ColumnChange(ChangeKind.REFUSED, name, whole))

    def _aside(self, name: str, detail: str) -> None:
        if name in self._partitions:
            # Its values would stay, and every row to come would have none.
            self._refused_partition(name, detail)
            return
        type_ = re.sub(r"\W+", "_", render_type(self._held.field(name).type)).strip("_")
        later = stem = f"{name}_was_{type_}"
        number = 1
        while later.lower() in self._taken:
            number += 1
            later = f"{stem}_{number}"
        self._taken.add(later.lower())
        self.found.append(
            ColumnChange(ChangeKind.ASIDE, name, f"{detail}: stays as {later}", later)
        )
