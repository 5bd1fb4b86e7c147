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

import pyarrow as pa

from headrace.model.change import table_arrow_schema
from headrace.model.schema import TableSchema

__all__ = ["ALL_DEAD", "DEAD", "FORM_COLUMNS", "NET", "ROW", "folded_schema", "origin_name"]

ROW = "ROW"
"""The key holds this row afterwards."""
DEAD = "DEAD"
"""The key holds nothing afterwards."""
NET = "NET"
"""The multiset holds ``_count`` more (or fewer) copies of this row."""
ALL_DEAD = "ALL_DEAD"
"""Every key that no other row of the table names holds nothing afterwards (truncate)."""

FORM_COLUMNS = ("_effect", "_count", "_missing", "_hole")


def origin_name(key_column: str) -> str:
    """Return the name of the origin column that belongs to a key column."""
    return f"_origin_{key_column}"


def folded_schema(schema: TableSchema) -> pa.Schema:
    """Return the Arrow schema of a table's folded form."""
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
