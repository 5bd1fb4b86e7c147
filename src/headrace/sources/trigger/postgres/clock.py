"""The commit clock: which transactions were seen first in which snapshot, and the SCNs that follow from it.

A sequence is drawn before a transaction commits, so a transaction with a lower number may become visible after one with
a higher: whoever asks for "all numbers above the last one" loses it. A transaction id is drawn earlier still. What
cannot be overtaken is a snapshot: all that it sees is finished for good, and a later snapshot sees that and more.

So the clock is a table of snapshots, each struck by whichever reader first finds something new. The transactions of a
tick are those that its snapshot sees and the one before it does not; their SCNs are the numbers behind the last tick's
last, in the order of the numbers that they drew when they committed. Once a tick is committed its SCNs are the same for
every reader and for ever.

Inside a tick that order is one in which every transaction stands behind those that it has seen the work of: they were
visible before it drew its number.

Source: Databus, section 4.1 (Figure 9).
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import SlotLost
from headrace.model.snapshot import TransactionSnapshot
from headrace.sources.postgres.connection import QueryFailed, Row, Session
from headrace.sources.trigger.cost import RESYNC

__all__ = ["Striker", "Tick", "head", "newly_seen", "ranges_sql", "tick_behind"]

_UNIQUE_VIOLATION = "23505"

_HEAD = """
SELECT after_scn, last_scn, seen::text, pg_current_snapshot()::text
  FROM headrace.txlog_clock ORDER BY after_scn DESC LIMIT 1
"""
_AT = """
SELECT after_scn, last_scn, seen::text FROM headrace.txlog_clock
 WHERE after_scn <= $1 ORDER BY after_scn DESC LIMIT 2
"""
_STRIKE = """
INSERT INTO headrace.txlog_clock (after_scn, last_scn, seen, at)
VALUES ($1, $2, $3::pg_snapshot, clock_timestamp())
"""


@dataclass(frozen=True, slots=True)
class Tick:
    """One row of the clock.

    Attributes:
        after_scn: last SCN of the tick before it; its own SCNs begin behind.
        last_scn: its last SCN.
        seen: its snapshot.
    """

    after_scn: int
    last_scn: int
    seen: TransactionSnapshot

    @classmethod
    def of(cls, row: Row) -> Tick:
        """Return the tick of the first three cells of a row."""
        return cls(int(row[0] or 0), int(row[1] or 0), TransactionSnapshot.parse(row[2] or ""))


def newly_seen(before: TransactionSnapshot, now: TransactionSnapshot) -> list[tuple[int, int]]:
    """Return the ids that a snapshot sees and an earlier one does not, as rising half-open ranges.

    Ranges rather than a condition on each row: what is still open is never looked at, however much it has written.
    """
    ended = sorted(xid for xid in before.xip if xid < now.xmax and xid not in now.xip)
    found = [(xid, xid + 1) for xid in ended]
    begin = before.xmax
    for xid in sorted(xid for xid in now.xip if xid >= before.xmax):
        if begin < xid:
            found.append((begin, xid))
        begin = xid + 1
    if begin < now.xmax:
        found.append((begin, now.xmax))
    return found


def ranges_sql(ranges: list[tuple[int, int]]) -> str:
    """Return ranges of ids as a source of rows ``(low, high)``."""
    lows = ",".join(str(low) for low, _ in ranges)
    highs = ",".join(str(high) for _, high in ranges)
    return f"unnest('{{{lows}}}'::xid8[], '{{{highs}}}'::xid8[]) AS r(low, high)"


def head(session: Session) -> Tick:
    """Return the last tick.

    Raises:
        SlotLost: there is none.
    """
    return _head(session)[0]


def _head(session: Session) -> tuple[Tick, TransactionSnapshot]:
    rows = session.rows(_HEAD)
    if not rows:
        raise SlotLost("The clock headrace.txlog_clock is empty.", next_step=f"{RESYNC}.")
    return Tick.of(rows[0]), TransactionSnapshot.parse(rows[0][3] or "")


def tick_behind(session: Session, scn: int) -> tuple[Tick, Tick] | None:
    """Return the tick that holds the SCN behind one, with the tick before it; None where that is still to come.

    Raises:
        SlotLost: the clock does not reach back, or forward, to it.
    """
    rows = session.rows(_AT, str(scn))
    ticks = [Tick.of(row) for row in rows]
    if ticks and ticks[0].last_scn == scn:
        return None
    if not ticks or ticks[0].last_scn < scn:
        raise SlotLost(
            f"The change tables do not hold what lies behind SCN {scn}: the clock "
            f"{'ends before' if ticks else 'begins behind'} it.",
            next_step=f"{RESYNC}.",
        )
    if len(ticks) < 2 or ticks[1].last_scn != ticks[0].after_scn:
        raise SlotLost(
            f"The change tables do not hold what lies behind SCN {scn}: it was purged.",
            next_step=f"{RESYNC}; or raise source.abandon_hours where a pipeline is away for longer.",
        )
    return ticks[0], ticks[1]


class Striker:
    """Strikes the clock. Used from one thread."""

    def __init__(self) -> None:
        self._after = -1
        self._looked: TransactionSnapshot | None = None

    def strike(self, session: Session) -> Tick:
        """Make a tick for what has become visible since the last one; return the last tick, new or not.

        Args:
            session: outside a transaction.

        Raises:
            SlotLost: the clock is empty.
        """
        session.run("BEGIN ISOLATION LEVEL REPEATABLE READ")
        try:
            last, now = _head(session)
            since = last.seen
            if last.after_scn == self._after and self._looked is not None:
                # Nothing had come up to there, so what is new has become visible since.
                since = self._looked
            ranges = newly_seen(since, now)
            count = _count(session, ranges) if ranges else 0
            if count:
                tick = Tick(last.last_scn, last.last_scn + count, now)
                session.run(_STRIKE, str(tick.after_scn), str(tick.last_scn), str(now))
                last = tick
            session.run("COMMIT")
        except QueryFailed as error:
            session.run("ROLLBACK")
            if error.sqlstate != _UNIQUE_VIOLATION:
                raise
            # Another reader struck at the same moment: its tick is as good, and what it did not see comes next.
            return head(session)
        except BaseException:
            if session.usable and session.in_transaction:
                session.run("ROLLBACK")
            raise
        self._after, self._looked = last.after_scn, now
        return last


def _count(session: Session, ranges: list[tuple[int, int]]) -> int:
    return int(
        session.value(
            f"SELECT count(DISTINCT t.xid) FROM {ranges_sql(ranges)} "
            "JOIN headrace.txlog t ON t.xid >= r.low AND t.xid < r.high"
        )
    )
