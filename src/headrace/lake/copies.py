"""What is said of a new copy of a table, whatever kind of target makes it; see `headrace.spark.again`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.errors import IncompatibleSchemaChange
from headrace.lake.planned import ChangeKind, ColumnChange
from headrace.model.schema import TableId

__all__ = ["Copy", "CopyNeeded", "refuse_in_place"]


class CopyNeeded(IncompatibleSchemaChange):
    """A change of columns that the table follows by a new copy of it; nothing was changed yet."""


@dataclass(frozen=True, slots=True)
class Copy:
    """What a copy says of itself.

    Attributes:
        request: the dump that fills it.
        after_scn: position behind which it began; only what completes later completes it.
    """

    request: str
    after_scn: int


def refuse_in_place(table: TableId, changes: Iterable[ColumnChange]) -> None:
    """Refuse what takes a new copy.

    Raises:
        CopyNeeded: names the column.
    """
    for change in changes:
        if change.kind is ChangeKind.RECOPY:
            raise CopyNeeded(
                f"{table}.{change.column} changed {change.detail}.",
                next_step=f"copy the table again: headrace dump start FILE --table {table}.",
            )
