"""Removes changes that every pipeline has read, a bounded piece at a time.

First the clock forgets the ticks, then their changes go: whoever begins at the oldest tick finds all behind it. A
pipeline that was not seen for ``source.abandon_hours`` loses its place, and is told so when it comes back.
"""

from __future__ import annotations

import logging

from headrace.sources.postgres.connection import Session
from headrace.sources.trigger.postgres import objects

__all__ = ["purge"]

_LOG = logging.getLogger(__name__)

_PIECE_ROWS = 5_000

# Whoever purges is there, however long it was away.
_ABANDONED = """
UPDATE headrace.txlog_readers SET scn = NULL
 WHERE scn IS NOT NULL AND name <> $1
   AND seen_at < clock_timestamp() - abandon_s * interval '1 second'
RETURNING name, abandon_s
"""
# The tick that every pipeline has behind it stays: the next one's transactions are told by it.
_FORGET = """
DELETE FROM headrace.txlog_clock WHERE after_scn < (
    SELECT max(c.after_scn) FROM headrace.txlog_clock c,
           (SELECT min(scn) AS scn, max(keep_s) AS keep_s FROM headrace.txlog_readers
             WHERE scn IS NOT NULL) r
     WHERE c.last_scn <= r.scn AND c.at < clock_timestamp() - r.keep_s * interval '1 second')
"""
# All ids below were finished by then, and those that are committed lie in ticks up to it.
_REMOVE = """
DELETE FROM headrace.{table} WHERE (xid, seq) IN (
    SELECT xid, seq FROM headrace.{table}
     WHERE xid < (SELECT pg_snapshot_xmin(seen) FROM headrace.txlog_clock ORDER BY after_scn LIMIT 1)
     ORDER BY xid, seq LIMIT {limit})
"""


def purge(session: Session, name: str) -> bool:
    """Remove one piece.

    Args:
        session: outside a transaction.
        name: of the pipeline that does it.

    Returns:
        whether there may be more to remove.
    """
    session.run("BEGIN")
    try:
        session.run(objects.LOCK)
        for other, patience_s in session.rows(_ABANDONED, name):
            _LOG.warning(
                "%s was not seen for %.0f h: its changes are kept no longer. Next step: none if it is gone for good; "
                "else headrace resync FILE when it comes back.",
                other,
                float(patience_s or 0) / 3600,
            )
        session.run(_FORGET)
        session.run("COMMIT")
    finally:
        if session.usable and session.in_transaction:
            session.run("ROLLBACK")
    # Entries last: what is left of a transaction is found by its changes.
    more = False
    for table in ("txlog_changes", "txlog"):
        tag = session.run(_REMOVE.format(table=table, limit=_PIECE_ROWS))
        more = more or tag == f"DELETE {_PIECE_ROWS}"
    return more
