"""The commit clock: changes get their number from whoever first sees them, and not from whoever writes them.

These servers tell no trigger which transaction it runs in, and no number that a transaction draws is in the order of
commits. So a change is written without a number. Now and then a reader opens a consistent snapshot and numbers the
changes that it sees and that have none yet: a tick. A snapshot sees a transaction whole or not at all, and a later one
sees that and more. So a transaction lies wholly in the tick of the first snapshot that sees it, however late it commits
and whoever overtook it.

Which changes a tick has is chosen by the snapshot alone, row by row, and then written down by another session: an
``UPDATE … WHERE scn IS NULL`` would look at what is committed *while it runs*, and take half of a transaction. One row
is locked meanwhile, so that nobody else numbers; the snapshot begins when it is held. Rows are numbered one by one
through their primary key, as a range would wait for writers, and make them wait.

A tick's changes are one window, in the order of their ids. Ids are drawn when a row is changed, while the writer holds
that row: so for each row that is the order in which it was changed, whoever did. Marks come behind, each with an SCN of
its own. Whoever reads a table in the snapshot that strikes a tick has seen all ticks up to that one and nothing else.

That needs a snapshot which shows no change of a row without those before it. One of MySQL's is what was committed at
an instant. Of MariaDB's it is looked up (`headrace.sources.trigger.mysql.overtaken`), and where it does not, another
one is taken.

Source: Databus, section 4.1 (Figure 9).
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.errors import ProtocolError, SlotLost
from headrace.plural import counted
from headrace.sources.mysql.connection import Session, connect
from headrace.sources.mysql.vendors import vendor_of
from headrace.sources.trigger.cost import RESYNC
from headrace.sources.trigger.marks import MARK
from headrace.sources.trigger.mysql.overtaken import is_overtaken
from headrace.sources.trigger.mysql.settings import MysqlTriggerSettings

__all__ = ["Striker", "Tick", "TickSnapshot", "head", "struck", "tick_behind"]

_AT_ONCE = 1_000
_ROWS = 20_000

_HEAD = (
    "SELECT after_scn, last_scn, changes, at_us FROM headrace.txlog_clock "
    "ORDER BY after_scn DESC LIMIT 1"
)
_AT = (
    "SELECT after_scn, last_scn, changes, at_us FROM headrace.txlog_clock "
    "WHERE after_scn <= {} ORDER BY after_scn DESC LIMIT 1"
)
_HOLD = "SELECT life FROM headrace.txlog_life WHERE one = 1 FOR UPDATE"
_ANY = "SELECT 1 FROM headrace.txlog_changes FORCE INDEX (scn) WHERE scn IS NULL LIMIT 1"
_PENDING = (
    "SELECT id, op FROM headrace.txlog_changes FORCE INDEX (scn) WHERE scn IS NULL ORDER BY id"
)
_NUMBER = "UPDATE headrace.txlog_changes FORCE INDEX (PRIMARY) SET scn = {} WHERE id IN ({})"
_STRIKE = (
    "INSERT INTO headrace.txlog_clock VALUES "
    "({}, {}, {}, CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED))"
)


@dataclass(frozen=True, slots=True)
class Tick:
    """One row of the clock.

    Attributes:
        after_scn: last SCN of the tick before it; its own SCNs begin behind.
        last_scn: its last SCN.
        changes: how many its window has; without any there is no window, and every SCN is a mark's.
        at_us: when it was struck, microseconds since 1970 UTC.
    """

    after_scn: int
    last_scn: int
    changes: int
    at_us: int

    @classmethod
    def of(cls, row: Sequence[str | None]) -> Tick:
        """Return the tick of a row of the clock."""
        after, last, changes, at_us = (int(cell or 0) for cell in row)
        return cls(after, last, changes, at_us)


@dataclass(frozen=True, slots=True)
class TickSnapshot:
    """A snapshot that has seen every tick up to one and nothing behind it.

    Attributes:
        scn: the last SCN of that tick.
    """

    scn: int

    def sees(self, xid: npt.NDArray[np.int64], scn: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
        """Return `YES` up to the tick, else `NO`; never `UNKNOWN`. A window's ``xid`` is its SCN at the source."""
        del scn  # Others may have moved it.
        return (xid <= self.scn).astype(np.int8)

    def __str__(self) -> str:
        return str(self.scn)


def head(session: Session) -> Tick:
    """Return the last tick.

    Raises:
        SlotLost: there is none.
    """
    rows = session.texts(_HEAD)
    if not rows:
        raise SlotLost("The clock headrace.txlog_clock is empty.", next_step=f"{RESYNC}.")
    return Tick.of(rows[0])


def tick_behind(session: Session, scn: int) -> Tick | None:
    """Return the tick that holds the SCN behind one, None where that is still to come.

    Raises:
        SlotLost: the clock does not reach back, or forward, to it.
    """
    rows = session.texts(_AT.format(scn))
    if rows and Tick.of(rows[0]).last_scn == scn:
        return None
    if not rows or Tick.of(rows[0]).last_scn < scn:
        raise SlotLost(
            f"The change tables do not hold what lies behind SCN {scn}: the clock "
            f"{'ends before' if rows else 'begins behind'} it.",
            next_step=f"{RESYNC}; or raise source.abandon_hours where a pipeline is away for longer.",
        )
    return Tick.of(rows[0])


class Striker:
    """Strikes the clock, over a connection of its own. Used from one thread."""

    def __init__(self, settings: MysqlTriggerSettings) -> None:
        self._settings = settings
        self._session: Session | None = None

    def strike(self, reading: Session) -> Tick:
        """Make a tick for what has become visible since the last one; return the last tick, new or not.

        Args:
            reading: outside a transaction.

        Raises:
            SlotLost: the clock is gone.
        """
        if not reading.rows(_ANY):
            return head(reading)
        with self.snapshot(reading) as tick:
            return tick

    @contextlib.contextmanager
    def snapshot(self, reading: Session) -> Iterator[Tick]:
        """Open a consistent snapshot, and make a tick of just what it sees; give the last tick.

        Raises:
            SlotLost: the clock is gone.
        """
        writing = self._connected()
        try:
            while (tick := _struck(reading, writing)) is None:
                reading.run("ROLLBACK")
                writing.run("ROLLBACK")
            writing.run("COMMIT")
        except BaseException:
            self.close()
            with contextlib.suppress(Exception):
                reading.run("ROLLBACK")
            raise
        try:
            yield tick
        finally:
            with contextlib.suppress(Exception):
                reading.run("ROLLBACK")

    def close(self) -> None:
        """Release the connection."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _connected(self) -> Session:
        if self._session is None or not self._session.open:
            self._session = connect(self._settings.database, patient=True)
            # Whoever numbers what a large transaction wrote is waited for.
            self._session.run(
                "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
                "SET SESSION innodb_lock_wait_timeout = 3600",
            )
        return self._session


def struck(settings: MysqlTriggerSettings, reading: Session) -> Tick:
    """Strike the clock once.

    Raises:
        SlotLost: the clock is gone.
    """
    striker = Striker(settings)
    try:
        return striker.strike(reading)
    finally:
        striker.close()


def _struck(reading: Session, writing: Session) -> Tick | None:
    """Open a snapshot and number what it sees; return the last tick, None where another snapshot is needed."""
    writing.run("START TRANSACTION")
    if not writing.rows(_HOLD):
        raise SlotLost("headrace.txlog_life is empty.", next_step=f"{RESYNC}.")
    reading.run("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
    last = head(reading)
    scn = last.last_scn + 1
    marks: list[int] = []
    changes = last_id = 0
    for ids in _pieces(reading, marks):
        _give(writing, scn, ids)
        changes += len(ids)
        last_id = ids[-1]
    if changes and not vendor_of(reading).instant and is_overtaken(writing, scn, last_id):
        return None
    end = last.last_scn + (changes > 0)
    for mark in marks:
        end += 1
        _give(writing, end, [mark])
    if end == last.last_scn:
        return last
    writing.run(_STRIKE.format(last.last_scn, end, changes))
    return Tick(last.last_scn, end, changes, 0)


def _pieces(reading: Session, marks: list[int]) -> Generator[list[int]]:
    """Yield the ids of changes that have no number, some at once; those of marks are put aside."""
    ids: list[int] = []
    for rows in reading.stream(_PENDING, _ROWS):
        for id_, op in rows:
            (marks if op == MARK else ids).append(int(id_ or 0))
            if len(ids) == _AT_ONCE:
                yield ids
                ids = []
    if ids:
        yield ids


def _give(writing: Session, scn: int, ids: Sequence[int]) -> None:
    found = writing.run(_NUMBER.format(scn, ", ".join(map(str, ids))))
    if found != len(ids):
        raise ProtocolError(
            f"{counted(len(ids) - found, 'change')} went from headrace.txlog_changes before they had a number.",
            next_step="find who writes there, which only headrace does; then `headrace resync FILE`.",
        )
