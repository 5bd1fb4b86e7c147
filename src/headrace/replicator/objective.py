"""How fresh the target was: the share of transactions that showed soon enough, over a sliding window.

In: sums as of frontiers and ends of minutes, and what waits in the change log. Out: the attainment. Pure; no clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headrace.lake.counts import OnTime
from headrace.state.minutes import MINUTE_S

__all__ = ["Attainment", "attained"]


@dataclass(frozen=True, slots=True)
class Attainment:
    """How far an objective is met.

    Attributes:
        share: what is wanted: the share of transactions.
        within_s: that show so soon after their commit.
        over_s: among those of the newest so many seconds.
        seen: transactions that became visible in that time.
        in_time: those of them that did soon enough.
        overdue: transactions of the change log that are not visible yet and cannot be in time any more.
    """

    share: float
    within_s: float
    over_s: int
    seen: int
    in_time: int
    overdue: int

    @property
    def attained(self) -> float | None:
        """The share that was in time; None when there was nothing to be in time."""
        every = self.seen + self.overdue
        return self.in_time / every if every else None

    @property
    def missed(self) -> bool:
        """Whether the share is lower than wanted."""
        attained = self.attained
        return attained is not None and attained < self.share

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "share": self.share,
            "within_s": self.within_s,
            "over_s": self.over_s,
            "seen": self.seen,
            "in_time": self.in_time,
            "overdue": self.overdue,
            "attained": self.attained,
            "missed": self.missed,
        }


def attained(
    wanted: tuple[float, float, int],
    now_s: float,
    newest: OnTime | None,
    ends: Iterable[tuple[int, OnTime]],
    overdue: int,
) -> Attainment:
    """Return how far an objective is met.

    Args:
        wanted: share, seconds within which, and seconds over which; the window begins with a whole minute.
        now_s: seconds since 1970 UTC.
        newest: sums as of the newest frontier; None before it counted.
        ends: minutes since 1970 UTC and the sums as of their ends, in order; of a minute in which no frontier came
            there is none.
        overdue: transactions that are not visible and older than ``within_s``.
    """
    share, within_s, over_s = wanted
    newest = newest if newest and newest.within_s == within_s else OnTime(within_s)
    before = OnTime(within_s)
    for minute, sums in ends:
        if (minute + 1) * MINUTE_S > now_s - over_s:
            break
        if sums.within_s == within_s:
            before = sums
    if before.seen > newest.seen or before.in_time > newest.in_time:
        # They began anew since: with another bound, or because the frontiers were taken away.
        before = OnTime(within_s)
    seen, in_time = newest.seen - before.seen, newest.in_time - before.in_time
    return Attainment(share, within_s, over_s, seen, in_time, overdue)
