"""One batch of a table of changes: nothing is folded, each change row stays as it came.

In: changes and the table before. Out: the log actions of one commit, their files written.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.lake.commit import Action
from headrace.lake.keyed import in_table_order
from headrace.lake.modes import MISSING, ORD, SCN
from headrace.lake.settle import settle
from headrace.lake.snapshot import Snapshot
from headrace.model.change import missing_matrix
from headrace.model.schema import TableSchema

__all__ = ["commit_append", "named_missing"]


def commit_append(snapshot: Snapshot, schema: TableSchema, changes: pa.Table) -> list[Action]:
    """Return the actions that add a batch's changes to a table, in order of ``(_scn, _ord)`` inside each file.

    Args:
        snapshot: the table before.
        schema: version of the changes.
        changes: as of `headrace.lake.modes.logged_schema`, in order.

    Raises:
        CorruptTable: a file of the table does not read.
        OSError: the folder refused.
    """
    rows = in_table_order(snapshot, named_missing(schema, changes))
    return settle(snapshot, {}, rows, (SCN, ORD))


def named_missing(schema: TableSchema, changes: pa.Table) -> pa.Table:
    """Return changes whose missing columns are told by name."""
    place = changes.schema.get_field_index(MISSING)
    return changes.set_column(place, MISSING, _names(schema, changes["_missing"]))


def _names(schema: TableSchema, masks: pa.ChunkedArray) -> pa.Array:
    """Return the columns of each mask, between commas, which no column's name has; null where nothing is missing."""
    if masks.null_count == len(masks):
        return pa.nulls(len(masks), pa.string())
    missing = missing_matrix(masks.combine_chunks(), len(schema.columns))
    texts: dict[bytes, str | None] = {}
    for row in missing:
        if row.tobytes() not in texts:
            names = [name for name, absent in zip(schema.names, row, strict=True) if absent]
            texts[row.tobytes()] = ",".join(names) or None
    return pa.array([texts[row.tobytes()] for row in missing], pa.string())
