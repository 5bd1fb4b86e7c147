"""One batch of a table with a key: which rows die, which are born.

In: the folded form and the table before. Out: the log actions of one commit, their files written.

Source: docs/paper_map.md, decision table of the apply step.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import MissingBase
from headrace.fold import ALL_DEAD, ROW
from headrace.lake.commit import Action
from headrace.lake.lent import filled, origins_of
from headrace.lake.probe import KeySet, places_of, rows_at
from headrace.lake.remembered import kept_names
from headrace.lake.settle import Dead, settle
from headrace.lake.snapshot import Snapshot
from headrace.lake.vectors import Places
from headrace.model.change import missing_matrix, table_arrow_schema
from headrace.model.schema import TableSchema

__all__ = ["all_dead", "commit_keyed", "in_table_order", "missing_base"]


def commit_keyed(
    snapshot: Snapshot, schema: TableSchema, folded: pa.Table, *, complete: bool
) -> list[Action]:
    """Return the actions that bring a table's rows behind a batch.

    Args:
        snapshot: the table before; it has the columns of ``schema``.
        schema: table version of the changes.
        folded: the folded form of the batch.
        complete: whether every row of the source is in the table.

    Raises:
        MissingBase: a complete table lacks the row that a change patches; nothing was written.
        CorruptTable: a file of the table does not read.
        OSError: the folder refused.
    """
    wiped = pc.any(pc.equal(folded["_effect"], ALL_DEAD)).as_py()
    effects = folded.filter(pc.not_equal(folded["_effect"], ALL_DEAD)) if wiped else folded
    live = effects.filter(pc.equal(effects["_effect"], ROW))
    # Lenders are read before anything is written: the same batch may delete or replace them.
    origins = KeySet(origins_of(schema, effects), snapshot.partition_columns)
    lenders = pa.Table.from_batches(
        rows_at(snapshot, places_of(snapshot, origins)), schema=snapshot.schema
    )
    own = table_arrow_schema(schema)
    rows, lost = filled(schema, live, lenders.select(own.names).cast(own))
    if lost.any():
        if complete:
            raise missing_base(schema, live, lost)
        # Its chunk has not come yet, and will bring the whole row.
        rows = rows.filter(pa.array(~lost))
    if wiped:
        dead = all_dead(snapshot)
    else:
        keys = KeySet(effects.select(schema.key), snapshot.partition_columns)
        dead = places_of(snapshot, keys)
    return settle(snapshot, dead, in_table_order(snapshot, rows), schema.key)


def all_dead(snapshot: Snapshot) -> Dead:
    """Return every row that lives.

    Raises:
        CorruptTable: a file of the table does not read.
    """
    return {index: _living(*snapshot.extent(file)) for index, file in enumerate(snapshot.files)}


def in_table_order(snapshot: Snapshot, rows: pa.Table) -> pa.Table:
    """Return rows with the columns in the table's order: a column that the source put between others stands last.

    A kept column that they do not speak of is null.
    """
    for name in kept_names(snapshot).difference(rows.schema.names):
        field = snapshot.schema.field(name)
        rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows.select(snapshot.schema.names).cast(snapshot.schema)


def _living(rows: int, deleted: Places) -> Places:
    return np.setdiff1d(np.arange(rows), deleted, assume_unique=True)


def missing_base(schema: TableSchema, live: pa.Table, lost: npt.NDArray[np.bool_]) -> MissingBase:
    """Return the error that names the columns of the first row with a cell that came from nowhere."""
    first = live.filter(pa.array(lost)).slice(0, 1)
    missing = missing_matrix(first["_missing"].combine_chunks(), len(schema.columns))[0]
    columns = [name for name, absent in zip(schema.names, missing, strict=True) if absent]
    return MissingBase(str(schema.table), f"({', '.join(schema.key)})", columns)
