"""How much the change tables keep, how far we are behind, and what the reading of changes has cost.

In: a few index lookups now and then, over a connection of its own. Out: numbers for ``headrace status`` and metrics.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from headrace.errors import HeadraceError
from headrace.sources.postgres.connection import Session, connect
from headrace.sources.trigger.refused import refusals
from headrace.sources.trigger.settings import TriggerSettings

__all__ = ["KeptChanges", "TxlogWatch"]

WARN_BYTES = 10 << 30

_QUERY = """
SELECT h.last_scn - r.scn, h.last_scn - o.last_scn,
       pg_total_relation_size('headrace.txlog_changes') + pg_total_relation_size('headrace.txlog'),
       r.queries, r.rows, r.seconds, r.slow
  FROM headrace.txlog_readers r,
       (SELECT last_scn FROM headrace.txlog_clock ORDER BY after_scn DESC LIMIT 1) h,
       (SELECT last_scn FROM headrace.txlog_clock ORDER BY after_scn LIMIT 1) o
 WHERE r.name = $1
"""


@dataclass(frozen=True, slots=True)
class KeptChanges:
    """The change tables, seen from our place.

    Attributes:
        status: ``kept``; ``missing`` without a place.
        retained_bytes: of the change tables and their indexes.
        unread_transactions: behind our place, as far as the clock has come.
        kept_transactions: that a reader could still go back over.
        fetch_queries: queries of changes since the pipeline began.
        fetch_rows: rows that came by them.
        fetch_seconds: how long they took.
        fetch_slow: how many of them took longer than ``source.slow_query_s``.
    """

    status: str
    retained_bytes: int = 0
    unread_transactions: int = 0
    kept_transactions: int = 0
    fetch_queries: int = 0
    fetch_rows: int = 0
    fetch_seconds: float = 0.0
    fetch_slow: int = 0

    @property
    def warning(self) -> str:
        """Why a person should look, empty when there is no reason."""
        if self.status == "missing":
            return "the pipeline has no place in the change tables: RESYNC NEEDED"
        return str(self) if self.retained_bytes >= WARN_BYTES else ""

    def __str__(self) -> str:
        return (
            f"the change tables have {self.retained_bytes:,} bytes and {self.kept_transactions:,} transactions, "
            f"{self.unread_transactions:,} of them not read"
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a status file."""
        return {**asdict(self), "warning": self.warning, "text": str(self)}


class TxlogWatch:
    """Looks at the change tables over a connection of its own, made again when it was lost."""

    def __init__(self, settings: TriggerSettings) -> None:
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
        if not rows:
            return KeptChanges("missing")
        unread, kept, size, queries, fetched, seconds, slow = rows[0]
        return KeptChanges(
            "kept",
            int(size or 0),
            int(unread or 0),
            int(kept or 0),
            int(queries or 0),
            int(fetched or 0),
            float(seconds or 0),
            int(slow or 0),
        )

    def close(self) -> None:
        """Release the connection."""
        if self._session is not None:
            self._session.close()
            self._session = None
