"""Walks through one tick, a bounded number of rows at a time; keeps no snapshot open."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator

from headrace.errors import ProtocolError
from headrace.sources.mysql.connection import Cells, Session
from headrace.sources.trigger.cost import Cost
from headrace.sources.trigger.events import Begin, ChangeRow, End
from headrace.sources.trigger.mysql.clock import Tick

__all__ = ["TickWalk"]

_LOG = logging.getLogger(__name__)

_FIRST_ROWS = 100
_MOST_ROWS = 20_000
_FETCH_BYTES = 4 << 20

_PAGE = (
    "SELECT id, layout, op, `before`, `after` FROM headrace.txlog_changes FORCE INDEX (scn) "
    "WHERE scn = {} AND id > {} ORDER BY id LIMIT {}"
)


class TickWalk:
    """See `headrace.sources.trigger.ports.Walk`.

    Args:
        session: outside a transaction.
        tick: what is read.
        skip_to: windows up to this SCN are passed over.
        cost: is told of every query.
        slow_query_s: what takes longer is slow.
    """

    def __init__(
        self, session: Session, tick: Tick, skip_to: int, cost: Cost, slow_query_s: float
    ) -> None:
        self._session = session
        self._tick = tick
        self._first = max(skip_to, tick.after_scn) + 1
        self._cost = cost
        self._slow_s = slow_query_s
        self._events = self._walk()

    @property
    def last_scn(self) -> int:
        """SCN of the tick's last window."""
        return self._tick.last_scn

    def next(self) -> Begin | ChangeRow | End | None:
        """Return what comes next, None behind the tick's last window.

        Raises:
            ProtocolError: the tick does not have what was counted when it was struck.
        """
        return next(self._events, None)

    def close(self) -> None:
        """Stop."""
        self._events.close()

    def _walk(self) -> Generator[Begin | ChangeRow | End]:
        tick = self._tick
        for scn in range(self._first, tick.last_scn + 1):
            expected = tick.changes if scn == tick.after_scn + 1 and tick.changes else 1
            yield Begin(scn, scn, tick.at_us)
            found = 0
            for row in self._rows(scn):
                found += 1
                yield row
            if found != expected:
                raise self._torn()
            yield End()

    def _rows(self, scn: int) -> Generator[ChangeRow]:
        last, wanted = 0, _FIRST_ROWS
        while rows := self._page(scn, last, wanted):
            size = 0
            for id_, layout, op, before, after in rows:
                last = int(id_ or 0)
                row = ChangeRow(int(layout or 0), op or b"", layout, before, after)
                size += row.nbytes
                yield row
            if len(rows) < wanted:
                return
            wanted = max(1, min(_MOST_ROWS, _FETCH_BYTES * len(rows) // max(size, 1), wanted * 4))

    def _page(self, scn: int, last: int, wanted: int) -> list[Cells]:
        begun = time.monotonic()
        rows = self._session.rows(_PAGE.format(scn, last, wanted))
        took_s = self._cost.add(len(rows), begun, self._slow_s)
        if took_s is not None:
            _LOG.warning(
                "a query of the change tables took %.1f s, more than source.slow_query_s. Next step: ANALYZE TABLE "
                "headrace.txlog_changes; and see whether the source is busy.",
                took_s,
            )
        return rows

    def _torn(self) -> ProtocolError:
        return ProtocolError(
            f"The change tables do not hold the changes {self._tick.after_scn + 1} to {self._tick.last_scn} as they "
            "were counted.",
            next_step="find who writes to headrace.txlog_changes; then `headrace resync FILE`.",
        )
