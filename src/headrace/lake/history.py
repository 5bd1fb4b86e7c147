"""One batch of a table that keeps every version of its rows (slowly changing dimension, type 2).

In: changes and the table before. Out: the log actions of one commit, their files written. A version holds from its
own commit up to, and without, the commit of the next one; the SCNs say the same where the source's clock is in doubt.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.lake.commit import Action
from headrace.lake.kept import kept_versions
from headrace.lake.keyed import in_table_order
from headrace.lake.modes import COMMITTED_AT, CURRENT, FROM_SCN, TO_SCN, VALID_FROM, VALID_TO
from headrace.lake.settle import settle
from headrace.lake.snapshot import Snapshot
from headrace.model.schema import TableSchema

__all__ = ["commit_history"]


def commit_history(
    snapshot: Snapshot, schema: TableSchema, changes: pa.Table, *, complete: bool
) -> list[Action]:
    """Return the actions that bring a table's rows behind a batch; arguments and errors as of `kept_versions`."""
    kept = kept_versions(
        snapshot, schema, changes, live=CURRENT, is_live=True, replaces=False, complete=complete
    )
    scn, at = changes["_scn"], changes[COMMITTED_AT]
    follows = np.where(kept.last, -1, np.append(kept.when[1:], -1))
    alive = ~kept.dead
    begun = pa.array(kept.when[alive])
    born = kept.rows.filter(pa.array(alive))
    born = born.append_column(VALID_FROM, at.take(begun))
    born = born.append_column(FROM_SCN, scn.take(begun))
    for name in (VALID_TO, TO_SCN, CURRENT):
        born = born.append_column(name, pa.nulls(born.num_rows))
    closing = kept.ended >= 0
    closed = kept.held.only(closing)
    rows = [
        in_table_order(snapshot, _ended(born, changes, follows[alive])),
        in_table_order(snapshot, _ended(closed.rows, changes, kept.ended[closing])),
    ]
    return settle(snapshot, closed.dead(), pa.concat_tables(rows), (*schema.key, FROM_SCN))


def _ended(rows: pa.Table, changes: pa.Table, places: npt.NDArray[np.int64]) -> pa.Table:
    """Return rows that end with the changes at some places, or are current where a place is negative."""
    ends = pa.array(places, mask=places < 0)
    for name, cells in (
        (VALID_TO, changes[COMMITTED_AT].take(ends)),
        (TO_SCN, changes["_scn"].take(ends)),
        (CURRENT, pa.array(places < 0)),
    ):
        rows = rows.set_column(rows.schema.get_field_index(name), name, cells)
    return rows
