"""By which columns a target table is partitioned: what was asked for, and what they are called now.

Pure. A partition column that is renamed at the source goes on under its new name, so a table remembers what the file
said when it was made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.errors import MadeOtherwise, UnfitSettings
from headrace.lake.partition_values import fits
from headrace.model.schema import TableId, TableSchema, render_type

__all__ = ["PARTITIONS_PROPERTY", "UNPARTITIONED", "Partitioning", "check_partitions"]

PARTITIONS_PROPERTY = "headrace.partition_by"
"""Table property with the columns that were asked for, as JSON."""


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The partition columns of a table.

    Attributes:
        asked: as the file named them when the table was made.
        now: as they are called now.
    """

    asked: tuple[str, ...] = ()
    now: tuple[str, ...] = ()

    @classmethod
    def of(cls, properties: Mapping[str, str], columns: Sequence[str]) -> Partitioning:
        """Return what a table says of itself.

        Args:
            properties: of the table.
            columns: its partition columns.
        """
        return cls(tuple(json.loads(properties.get(PARTITIONS_PROPERTY, "[]"))), tuple(columns))

    def later(self, names: Mapping[str, str] | None) -> Partitioning:
        """Return it once columns have other names; None where nobody knows them."""
        if names is None:
            return self
        return Partitioning(self.asked, tuple(names.get(name, name) for name in self.now))

    def refuse_other(self, table: TableId, asked: tuple[str, ...]) -> None:
        """Refuse what the file asks for if the table was made in another way.

        Raises:
            MadeOtherwise: naming both.
        """
        if asked not in (self.asked, self.now):
            raise MadeOtherwise(
                f"The target table of {table} is {_by(self.now)}, and the file asks for one that is {_by(asked)}.",
                next_step=f"set partition_by back, or move the target table away and copy it again: "
                f"headrace dump start FILE --table {table}.",
            )


UNPARTITIONED = Partitioning()
"""Of a table whose files may hold any row."""


def _by(columns: Sequence[str]) -> str:
    return f"partitioned by {', '.join(columns)}" if columns else "not partitioned"


def check_partitions(schema: TableSchema, columns: Sequence[str]) -> None:
    """Refuse columns by which a table cannot be partitioned.

    Args:
        schema: of the target table.
        columns: its partition columns.

    Raises:
        UnfitSettings: naming table and column.
    """
    for name in columns:
        if name not in schema.names:
            raise _refused(schema, f"names {name}, which is no column of the target table")
        type_ = schema.column(name).type
        if not fits(type_):
            raise _refused(
                schema, f"names {name}, whose type {render_type(type_)} tells no partitions apart"
            )
    if columns and len(columns) == len(schema.columns):
        raise _refused(schema, "names every column, which leaves none for the files")


def _refused(schema: TableSchema, what: str) -> UnfitSettings:
    return UnfitSettings(
        f"tables: partition_by of {schema.table} {what}.",
        next_step="correct partition_by in the section tables of the file.",
    )
