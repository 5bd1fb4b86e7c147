"""How often somebody may ask: a bucket per person that fills with time, and one for wrong tokens per address.

In: who asks, and a clock. Out: nothing, or the seconds after which it may be asked again. Not more than `_MOST_BUCKETS`
are remembered; a full bucket is what nobody needs to remember.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Buckets", "RateLimits"]

_MOST_BUCKETS = 10_000


@dataclass(frozen=True, slots=True)
class RateLimits:
    """What one may ask of a control plane.

    Attributes:
        per_s: requests per second that each person may make in the long run.
        burst: requests that they may make at once.
        wrong_tokens: guesses per minute that an address may make; then it waits, whatever it sends.
    """

    per_s: float = 100.0
    burst: int = 1_000
    wrong_tokens: int = 20


class Buckets:
    """One bucket per name; may be used from any thread.

    Args:
        per_s: what flows in.
        most: what one holds; each begins full.
        clock: monotonic seconds.
    """

    def __init__(
        self, per_s: float, most: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_s, self._most, self._clock = per_s, most, clock
        self._lock = threading.Lock()
        self._held: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, name: str) -> float:
        """Return after how many seconds a bucket has one again; 0 while it has."""
        with self._lock:
            return max(0.0, (1 - self._level(name)) / self._per_s)

    def take(self, name: str) -> float:
        """Take one out; return 0, or after how many seconds there is one, and take none."""
        with self._lock:
            level = self._level(name)
            if level < 1:
                return (1 - level) / self._per_s
            self._held[name] = (level - 1, self._clock())
            self._held.move_to_end(name)
            while len(self._held) > _MOST_BUCKETS:
                self._held.popitem(last=False)
            return 0.0

    def _level(self, name: str) -> float:
        level, at = self._held.get(name, (self._most, 0.0))
        return min(self._most, level + (self._clock() - at) * self._per_s)
