"""Removes changes that every pipeline has read, a bounded piece at a time.

First the clock forgets the ticks, then their changes go: whoever begins at the oldest tick finds all behind it. A
pipeline that was not seen for ``source.abandon_hours`` loses its place, and is told so when it comes back.
"""

from __future__ import annotations

import logging

from headrace.sources.mysql.connection import Session, quote_literal
from headrace.sources.trigger.mysql.installed import held

__all__ = ["purge"]

_LOG = logging.getLogger(__name__)

_PIECE_ROWS = 5_000
_AT_ONCE = 1_000

_ABANDONED = (
    "SELECT name, abandon_s FROM headrace.txlog_readers WHERE scn IS NOT NULL AND name <> {} "
    "AND TIMESTAMPDIFF(MICROSECOND, seen_at, SYSDATE(6)) > abandon_s * 1e6"
)
_ABANDON = "UPDATE headrace.txlog_readers SET scn = NULL WHERE name = {}"
# The tick that every pipeline has behind it stays: with it the clock says up to where changes are gone.
_READ = """
SELECT MAX(c.after_scn) FROM headrace.txlog_clock c, (
    SELECT MIN(scn) AS scn, MAX(keep_s) AS keep_s FROM headrace.txlog_readers WHERE scn IS NOT NULL) r
 WHERE c.last_scn <= r.scn AND c.at_us < UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 - r.keep_s * 1000000
"""
_IDS = (
    "SELECT id FROM headrace.txlog_changes FORCE INDEX (scn) WHERE scn <= "
    "(SELECT MIN(last_scn) FROM headrace.txlog_clock) ORDER BY scn, id LIMIT {}"
)
# Row by row through the primary key: a scan, which an optimizer may prefer to a list, would wait for those who write.
_REMOVE = (
    "DELETE headrace.txlog_changes FROM (SELECT {}) w "
    "STRAIGHT_JOIN headrace.txlog_changes ON headrace.txlog_changes.id = w.id"
)


def purge(session: Session, name: str) -> bool:
    """Remove one piece.

    Args:
        session: outside a transaction.
        name: of the pipeline that does it.

    Returns:
        whether there may be more to remove.
    """
    with held(session):
        for other, patience_s in session.texts(_ABANDONED.format(quote_literal(name))):
            session.run(_ABANDON.format(quote_literal(other or "")))
            _LOG.warning(
                "%s was not seen for %.0f h: its changes are kept no longer. Next step: none if it is gone for good; "
                "else headrace resync FILE when it comes back.",
                other,
                float(patience_s or 0) / 3600,
            )
        if read := session.value(_READ):
            session.run(f"DELETE FROM headrace.txlog_clock WHERE after_scn < {int(read)}")
    ids = [int(row[0] or 0) for row in session.rows(_IDS.format(_PIECE_ROWS))]
    for at in range(0, len(ids), _AT_ONCE):
        listed = " UNION ALL SELECT ".join(f"{id_} AS id" for id_ in ids[at : at + _AT_ONCE])
        session.run(_REMOVE.format(listed))
    return len(ids) == _PIECE_ROWS
