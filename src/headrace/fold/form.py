"""The folded form: what a stretch of changes does to each key, as a table.

One row per key (per distinct row for tables without a key). Columns, in order::

    _effect        string  ROW, DEAD, NET or ALL_DEAD
    _count         int64   NET only: copies added (positive) or removed (negative), never 0
    _missing       binary  bit mask of cells nobody in the stretch sent (see `headrace.model.change`)
    _hole          bool    true: those cells have nowhere to come from
    _origin_<key>  …       one per key column: the key whose row this one grew out of, "the row the target held
                           there before the stretch", from which missing cells are taken; null when some event
                           carried the row whole, or ``_hole`` is true
    the table's own columns

All missing cells of one row share one origin: a row is one physical row that held one key before the stretch. A row
with an origin and without missing cells is pieced together from patches, none of which carried it whole.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from headrace.errors import IncompatibleSchemaChange
from headrace.model.change import META, table_arrow_schema
from headrace.model.schema import TableSchema

__all__ = [
    "ALL_DEAD",
    "DEAD",
    "FORM_COLUMNS",
    "NET",
    "ROW",
    "folded_schema",
    "origin_name",
    "refuse_taken",
    "taken_names",
]

ROW = "ROW"
"""The key holds this row afterwards."""
DEAD = "DEAD"
"""The key holds nothing afterwards."""
NET = "NET"
"""The multiset holds ``_count`` more (or fewer) copies of this row."""
ALL_DEAD = "ALL_DEAD"
"""Every key that no other row of the table names holds nothing afterwards (truncate)."""

FORM_COLUMNS = ("_effect", "_count", "_missing", "_hole")

_NEXT_STEP = "leave the column out (source.columns), or rename it at the source."


def origin_name(key_column: str) -> str:
    """Return the name of the origin column that belongs to a key column."""
    return f"_origin_{key_column}"


def taken_names(names: Iterable[str], key: Iterable[str]) -> list[str]:
    """Return those of a table's columns whose names stand for something else, in changes or in the folded form."""
    return sorted({*META, *FORM_COLUMNS, *map(origin_name, key)}.intersection(names))


def refuse_taken(schema: TableSchema, next_step: str = _NEXT_STEP) -> None:
    """Refuse a table one of whose columns has a name that stands for something else, in changes or in the folded form.

    Args:
        schema: a version of it.
        next_step: what a person does where the table comes from.

    Raises:
        IncompatibleSchemaChange: naming the column.
    """
    if taken := taken_names(schema.names, schema.key):
        raise IncompatibleSchemaChange(
            f"{schema.table} has a column {taken[0]}, a name that headrace needs for itself.",
            next_step=next_step,
        )


def folded_schema(schema: TableSchema) -> pa.Schema:
    """Return the Arrow schema of a table's folded form; errors as of `refuse_taken`."""
    refuse_taken(schema)
    own = table_arrow_schema(schema)
    return pa.schema(
        [
            pa.field("_effect", pa.string(), nullable=False),
            pa.field("_count", pa.int64()),
            pa.field("_missing", pa.binary()),
            pa.field("_hole", pa.bool_(), nullable=False),
            *(pa.field(origin_name(name), own.field(name).type) for name in schema.key),
            *own,
        ]
    )
