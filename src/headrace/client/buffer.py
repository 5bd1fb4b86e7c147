"""What was received and is not yet delivered: a queue that is bounded in bytes, and a way round it.

To wake a thread costs more than a small block does. Where blocks come one after the other and the thread that delivers
waits for each, the one that receives lends it what it reads from. It comes back when nothing follows for a moment, or
when whoever has it is away for long: then blocks are received while others are being delivered.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

__all__ = ["ByteBuffer", "Inlet"]

T = TypeVar("T")

_QUIET_S = 0.1
"""Whoever reads what was lent gives it back when nothing comes for so long: only the other side waits for ever. Several
times a relay's longest pace, or it would change hands with each block."""
_AWAY_S = 0.1
"""Whoever was lent something and does not look after it for so long loses it."""


class Inlet(Protocol[T]):
    """What items can be read from by either side."""

    def read(self, wait_s: float, most_bytes: int) -> tuple[list[T], int]:
        """Return what comes within some seconds and what is there with it, and its bytes; nothing once it is over."""
        ...


class ByteBuffer(Generic[T]):
    """Items between one thread that puts and one that takes.

    An item larger than the whole buffer goes in when the buffer is empty: a large block waits for room, never for ever.

    Args:
        limit_bytes: above this whoever puts waits.
        clock: monotonic seconds.

    Attributes:
        held_bytes: of all items now.
        peak_bytes: the most there ever were.
    """

    def __init__(self, limit_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit_bytes
        self._clock = clock
        self._items: deque[tuple[T, int]] = deque()
        # Taken by itself where nobody waits or is told: a condition takes it by way of two more calls.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._closed = False
        self._woken = False
        self._waiting = False
        self._lent: Inlet[T] | None = None
        self._away_since: float | None = None
        self.held_bytes = 0
        self.peak_bytes = 0

    # -- the thread that receives -----------------------------------------------------------------

    def put(self, item: T, nbytes: int = 0) -> bool:
        """Add an item once there is room; return False, without the item, when the buffer was closed."""
        with self._changed:
            while not self._closed and self.held_bytes and self.held_bytes + nbytes > self._limit:
                self._changed.wait()
            if self._closed:
                return False
            self._items.append((item, nbytes))
            self.held_bytes += nbytes
            self.peak_bytes = max(self.peak_bytes, self.held_bytes)
            self._changed.notify_all()
            return True

    @property
    def is_awaited(self) -> bool:
        """Whether the other side has nothing to do but to wait."""
        return self._waiting

    def lend(self, inlet: Inlet[T]) -> None:
        """Let the other side read for itself; come back when it gives that up, or was away for long."""
        with self._changed:
            self._lent = inlet
            self._changed.notify_all()
            while self._lent is not None and not self._closed:
                self._changed.wait(_AWAY_S)
                away = self._away_since
                if away is not None and self._clock() - away >= _AWAY_S:
                    self._lent = None

    # -- the thread that delivers -----------------------------------------------------------------

    def take(self, timeout_s: float, most_bytes: int) -> list[T]:
        """Return the next item, and with it what else is there up to ``most_bytes`` together.

        Nothing comes when nothing was put in time, or when somebody called `wake`.
        """
        with self._lock:
            self._away_since = None
            lent = None if self._items or self._woken else self._lent
        if lent is not None:
            taken, size = lent.read(_QUIET_S, min(most_bytes, self._limit))
            if taken:
                if size > self.peak_bytes:
                    self.peak_bytes = size
                # No lock: whoever lent it only looks whether this is long ago.
                self._away_since = self._clock()
                return taken
        with self._lock:
            if lent is not None and self._lent is lent:
                self._lent = None
                self._changed.notify_all()
            if not self._items and not self._woken and self._lent is None:
                self._waiting = True
                self._changed.wait(timeout_s)
                self._waiting = False
            self._woken = False
            self._away_since = self._clock()
            return self._popped(most_bytes)

    def _popped(self, most_bytes: int) -> list[T]:
        taken: list[T] = []
        size = 0
        while self._items and (not taken or size + self._items[0][1] <= most_bytes):
            item, nbytes = self._items.popleft()
            size += nbytes
            taken.append(item)
        self.held_bytes -= size
        self._changed.notify_all()
        return taken

    # -- any thread -------------------------------------------------------------------------------

    def wake(self) -> None:
        """Make whoever takes look around now."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def close(self) -> None:
        """Throw away what is there and take no more."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._lent = None
            self.held_bytes = 0
            self._changed.notify_all()
