"""Reads the transactions of one tick, in the order of their SCNs, a bounded number of rows at a time.

The database joins and orders by its indexes and never sorts images; what it keeps meanwhile is a snapshot.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator

from headrace.errors import ProtocolError
from headrace.sources.postgres.connection import Session
from headrace.sources.trigger.cost import Cost
from headrace.sources.trigger.events import Begin, ChangeRow, End
from headrace.sources.trigger.postgres.clock import Tick, newly_seen, ranges_sql

__all__ = ["Fetch"]

_LOG = logging.getLogger(__name__)

_TRANSACTIONS = 500
_FIRST_ROWS = 100
_MOST_ROWS = 20_000
_FETCH_BYTES = 4 << 20

# The inner select's order is that of its index, and rows of the outer one come as they are listed.
_ROWS = """
DECLARE headrace_rows NO SCROLL CURSOR FOR
SELECT w.place, c.seq, c.relid, c.op, c.layout, c.before, c.after
  FROM unnest('{%s}'::xid8[]) WITH ORDINALITY AS w(xid, place),
       LATERAL (SELECT * FROM headrace.txlog_changes t WHERE t.xid = w.xid ORDER BY t.seq) c
"""


class Fetch:
    """Walks through one tick.

    Args:
        session: on which nothing else runs until `close`.
        before: the tick before.
        tick: what is read.
        skip_to: transactions up to this SCN are passed over.
        cost: is told of every query.
        slow_query_s: what takes longer is slow.
    """

    def __init__(
        self,
        session: Session,
        before: Tick,
        tick: Tick,
        skip_to: int,
        cost: Cost,
        slow_query_s: float,
    ) -> None:
        self.tick = tick
        self._session = session
        self._before = before
        self._scn = max(skip_to, tick.after_scn)
        self._cost = cost
        self._slow_s = slow_query_s
        self._events = self._walk()

    @property
    def last_scn(self) -> int:
        """SCN of the tick's last transaction."""
        return self.tick.last_scn

    def next(self) -> Begin | ChangeRow | End | None:
        """Return what comes next, None behind the tick's last transaction.

        Raises:
            ProtocolError: the tick does not have the transactions that were counted when it was struck.
        """
        return next(self._events, None)

    def close(self) -> None:
        """Let go of the database's snapshot."""
        self._events.close()
        if self._session.usable and self._session.in_transaction:
            self._session.run("ROLLBACK")

    def _walk(self) -> Generator[Begin | ChangeRow | End]:
        session, tick = self._session, self.tick
        ranges = newly_seen(self._before.seen, tick.seen)
        session.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        session.run(
            "DECLARE headrace_transactions NO SCROLL CURSOR FOR "
            "SELECT t.xid, max(t.seq), (extract(epoch FROM max(t.at)) * 1000000)::bigint "
            f"FROM {ranges_sql(ranges)} JOIN headrace.txlog t ON t.xid >= r.low AND t.xid < r.high "
            "GROUP BY t.xid ORDER BY 2"
        )
        passed = self._scn - tick.after_scn
        if passed and session.run(f"MOVE {passed} FROM headrace_transactions") != f"MOVE {passed}":
            raise self._torn()
        while batch := self._cells(f"FETCH {_TRANSACTIONS} FROM headrace_transactions"):
            yield from self._batch(batch)
        if self._scn != tick.last_scn:
            raise self._torn()
        session.run("COMMIT")

    def _batch(self, batch: list[list[bytes | None]]) -> Generator[Begin | ChangeRow | End]:
        self._session.run(_ROWS % ",".join(str(int(row[0] or 0)) for row in batch))
        place, last, wanted = 0, -1, _FIRST_ROWS
        while rows := self._cells(f"FETCH {wanted} FROM headrace_rows"):
            size = 0
            for cells in rows:
                at, seq = int(cells[0] or 0), int(cells[1] or 0)
                if at not in (place, place + 1) or (at == place and seq <= last):
                    # Each entry has changes, whoever purges them purges the entry too.
                    raise self._torn()
                if at > place:
                    if place:
                        yield End()
                    yield self._begin(batch[place])
                    place = at
                last = seq
                row = ChangeRow(int(cells[2] or 0), cells[3] or b"", *cells[4:])
                size += row.nbytes
                yield row
            wanted = max(1, min(_MOST_ROWS, _FETCH_BYTES * len(rows) // max(size, 1), wanted * 4))
        if place < len(batch):
            raise self._torn()
        yield End()
        self._session.run("CLOSE headrace_rows")

    def _begin(self, cells: list[bytes | None]) -> Begin:
        self._scn += 1
        return Begin(self._scn, int(cells[0] or 0), int(cells[2] or 0))

    def _cells(self, sql: str) -> list[list[bytes | None]]:
        begun = time.monotonic()
        rows = self._session.cells(sql)
        took_s = self._cost.add(len(rows), begun, self._slow_s)
        if took_s is not None:
            _LOG.warning(
                "a query of the change tables took %.1f s, more than source.slow_query_s. Next step: VACUUM ANALYZE "
                "headrace.txlog, headrace.txlog_changes; and see whether the source is busy.",
                took_s,
            )
        return rows

    def _torn(self) -> ProtocolError:
        return ProtocolError(
            f"The change tables do not hold the transactions {self.tick.after_scn + 1} to {self.tick.last_scn} as they "
            "were counted.",
            next_step="find who writes to headrace.txlog or headrace.txlog_changes; then `headrace resync FILE`.",
        )
