"""How much the change tables keep, how far we are behind, and what the reading of changes has cost.

In: a few index lookups now and then, over a connection of its own. Out: numbers for ``headrace status`` and metrics.
"""

from __future__ import annotations

from headrace.errors import HeadraceError
from headrace.sources.mysql.connection import Session, connect, quote_literal
from headrace.sources.trigger.kept import KeptChanges
from headrace.sources.trigger.mysql.refused import refusals
from headrace.sources.trigger.mysql.settings import MysqlTriggerSettings

__all__ = ["TxlogWatch"]

_QUERY = """
SELECT h.last_scn - r.scn, h.last_scn - o.last_scn,
       (SELECT SUM(data_length + index_length) FROM information_schema.tables
         WHERE table_schema = 'headrace' AND table_name = 'txlog_changes'),
       r.queries, r.fetched, r.seconds, r.slow
  FROM headrace.txlog_readers r,
       (SELECT last_scn FROM headrace.txlog_clock ORDER BY after_scn DESC LIMIT 1) h,
       (SELECT last_scn FROM headrace.txlog_clock ORDER BY after_scn LIMIT 1) o
 WHERE r.name = {}
"""


class TxlogWatch:
    """Looks at the change tables over a connection of its own, made again when it was lost."""

    def __init__(self, settings: MysqlTriggerSettings) -> None:
        self._settings = settings
        self._session: Session | None = None

    def look(self, now_s: float) -> KeptChanges:
        """Look once; see `headrace.sources.database.LogWatch`."""
        del now_s  # Nothing here is a rate.
        try:
            if self._session is None:
                self._session = connect(self._settings.database)
            with refusals():
                rows = self._session.texts(_QUERY.format(quote_literal(self._settings.name)))
        except HeadraceError:
            self.close()
            raise
        return KeptChanges.of(rows)

    def close(self) -> None:
        """Release the connection."""
        if self._session is not None:
            self._session.close()
            self._session = None
