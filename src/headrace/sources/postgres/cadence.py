"""When a stream hands over what it has: at once after a pause, a little apart while more comes, much at once when busy.

The distance is short, because whoever reads joins small blocks (`headrace.changelog.merging`), and it is not what
keeps a busy stream's blocks few: while one is on its way to the disk, the next gathers rows. Where very many come,
they wait for each other on top of that.
"""

from __future__ import annotations

import math

__all__ = ["Cadence"]

_LONGEST_AT = 150_000.0
"""Rows a second that may wait for `_LONGEST_S`; the wait falls with the square of the rate: 1 ms at 20,000."""
_SHORTEST_S = 0.001
_LONGEST_S = 0.05
_MEMORY_S = 0.025
"""How far back the rate looks: one transaction of many rows between two small blocks is no load."""
_BUSY_ABOVE = 20_000.0
_IDLE_BELOW = 10_000.0
"""Rows a second. Two bounds, so that a stream near one of them does not change its mind with every block."""


class Cadence:
    """Measures the rate of rows.

    Args:
        interval_s: least distance between two blocks; what comes after a longer pause leaves at once.

    Attributes:
        busy: whether reading should pause to let more come in at once.
    """

    def __init__(self, interval_s: float) -> None:
        self.busy = False
        self._interval_s = interval_s
        self._rate = 0.0
        self._wait_s = 0.0
        self._since: float | None = None
        self._ended = float("-inf")

    @property
    def due_at(self) -> float:
        """When the rows at hand should leave; never, when there are none."""
        if self._since is None:
            return float("inf")
        return max(self._since + self._wait_s, self._ended + self._interval_s)

    def begun(self, now: float) -> None:
        """Take note that there is something to hand over."""
        if self._since is None:
            self._since = now

    def due(self, now: float) -> bool:
        """Return whether what is at hand should leave."""
        return now >= self.due_at

    def lull(self) -> None:
        """Take note that nothing more came for a while: what is at hand waits for nothing."""
        self._wait_s = 0.0

    def ended(self, now: float, rows: int) -> None:
        """Take note that ``rows`` have left."""
        took_s = max(now - self._ended, 1e-4)
        kept = math.exp(-took_s / _MEMORY_S)
        self._rate = self._rate * kept + rows / took_s * (1 - kept)
        self._since, self._ended = None, now
        wait_s = min(1.0, (self._rate / _LONGEST_AT) ** 2) * _LONGEST_S
        self._wait_s = wait_s if wait_s >= _SHORTEST_S else 0.0
        self.busy = self._rate > (_IDLE_BELOW if self.busy else _BUSY_ABOVE)
