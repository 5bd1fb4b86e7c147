"""When a batch is due, and where it ends: the clock of the apply job."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from headrace.spark.log import Log, assure_reaches
from headrace.spark.slices import Filling, Limits

__all__ = ["BatchClock"]


class BatchClock:
    """Cuts a log that grows into batches, one behind the other.

    Args:
        log: all of it.
        limits: of a batch.
        trigger_s: least time between two batches while the job keeps up; one that is behind waits for nothing.
        first_end: SCN that the first batches do not cross; 0 for none.
        now: monotonic seconds.
    """

    def __init__(
        self,
        log: Log[Any],
        limits: Limits,
        trigger_s: float,
        first_end: int = 0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._limits = limits
        self._trigger_s = trigger_s
        self._first_end = first_end
        self._now = now
        self._next_at = now()
        self._batch = Filling(0)

    def due(self, begin: int) -> int | None:
        """Return the SCN at which the batch behind ``begin`` ends, between two transactions; None while none is due.

        Raises:
            ChangeLogLost: the log ends before ``begin``, up to which it was applied, or before ``first_end``.
        """
        tail = self._log.tail()
        # Of another log that comes to pass the tables' position, the rows below that would be missing.
        assure_reaches(tail, max(begin, self._first_end), "The target tables")
        newest = tail.covered_scn
        upto = min(newest, self._first_end) if begin < self._first_end else newest
        if upto <= begin:
            return None
        if begin != self._batch.after_scn or upto < self._batch.seen_scn:
            # Another batch, or a log that is an older copy of what was looked at.
            self._batch = Filling(begin)
        end = self._batch.end(self._log, upto, self._limits)
        now = self._now()
        if end == newest and now < self._next_at:
            return None
        self._next_at = now + self._trigger_s
        return end
