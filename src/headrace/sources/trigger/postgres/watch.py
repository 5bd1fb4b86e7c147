"""How much the change tables keep, how far we are behind, and what the reading of changes has cost.

In: a few index lookups now and then, over a connection of its own. Out: numbers for ``headrace status`` and metrics.
"""

from __future__ import annotations

from headrace.errors import HeadraceError
from headrace.sources.postgres.connection import Session, connect
from headrace.sources.trigger.kept import KeptChanges
from headrace.sources.trigger.postgres.refused import refusals
from headrace.sources.trigger.postgres.settings import PostgresTriggerSettings

__all__ = ["TxlogWatch"]

_QUERY = """
SELECT h.last_scn - r.scn, h.last_scn - o.last_scn,
       pg_total_relation_size('headrace.txlog_changes') + pg_total_relation_size('headrace.txlog'),
       r.queries, r.rows, r.seconds, r.slow
  FROM headrace.txlog_readers r,
       (SELECT last_scn FROM headrace.txlog_clock ORDER BY after_scn DESC LIMIT 1) h,
       (SELECT last_scn FROM headrace.txlog_clock ORDER BY after_scn LIMIT 1) o
 WHERE r.name = $1
"""


class TxlogWatch:
    """Looks at the change tables over a connection of its own, made again when it was lost."""

    def __init__(self, settings: PostgresTriggerSettings) -> None:
        self._settings = settings
        self._session: Session | None = None

    def look(self, now_s: float) -> KeptChanges:
        """Look once; see `headrace.sources.database.LogWatch`."""
        del now_s  # Nothing here is a rate.
        try:
            if self._session is None:
                self._session = connect(self._settings.database)
            with refusals():
                rows = self._session.rows(_QUERY, self._settings.name)
        except HeadraceError:
            self.close()
            raise
        return KeptChanges.of(rows)

    def close(self) -> None:
        """Release the connection."""
        if self._session is not None:
            self._session.close()
            self._session = None
