"""One batch of a table that keeps deleted rows: they stay with the cells that they had, and say so.

In: changes and the table before. Out: the log actions of one commit, their files written.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headrace.lake.commit import Action
from headrace.lake.kept import kept_versions
from headrace.lake.keyed import in_table_order
from headrace.lake.modes import COMMITTED_AT, DELETED, DELETED_AT, SCN
from headrace.lake.settle import settle
from headrace.lake.snapshot import Snapshot
from headrace.model.schema import TableSchema

__all__ = ["commit_soft_delete"]


def commit_soft_delete(
    snapshot: Snapshot, schema: TableSchema, changes: pa.Table, *, complete: bool
) -> list[Action]:
    """Return the actions that bring a table's rows behind a batch; arguments and errors as of `kept_versions`."""
    kept = kept_versions(
        snapshot, schema, changes, live=DELETED, is_live=False, replaces=True, complete=complete
    )
    scn, at = changes["_scn"], changes[COMMITTED_AT]
    last = pa.array(kept.when[kept.last])
    dead = pa.array(kept.dead[kept.last])
    born = kept.rows.filter(pa.array(kept.last))
    born = born.append_column(DELETED, dead)
    born = born.append_column(DELETED_AT, pc.if_else(dead, at.take(last), None))
    born = born.append_column(SCN, scn.take(last))
    marked = (kept.ended >= 0) & ~kept.replaced
    ended = pa.array(kept.ended[marked])
    wiped = kept.held.only(marked).rows
    for name, cells in (
        (DELETED, pa.repeat(True, len(ended))),
        (DELETED_AT, at.take(ended)),
        (SCN, scn.take(ended)),
    ):
        wiped = wiped.set_column(wiped.schema.get_field_index(name), name, cells)
    rows = pa.concat_tables([in_table_order(snapshot, born), in_table_order(snapshot, wiped)])
    gone = kept.held.only(kept.replaced | marked)
    return settle(snapshot, gone.dead(), rows, schema.key)
