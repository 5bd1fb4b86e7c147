"""What was received and is not yet delivered: a queue that is bounded in bytes."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

__all__ = ["ByteBuffer"]

T = TypeVar("T")


class ByteBuffer(Generic[T]):
    """Items between one thread that puts and one that takes.

    An item larger than the whole buffer goes in when the buffer is empty: a large block waits for room, never for ever.

    Args:
        limit_bytes: above this whoever puts waits.

    Attributes:
        held_bytes: of all items now.
        peak_bytes: the most there ever were.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._items: deque[tuple[T, int]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._woken = False
        self.held_bytes = 0
        self.peak_bytes = 0

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

    def take(self, timeout_s: float, most_bytes: int) -> list[T]:
        """Return the next item, and with it what else is there up to ``most_bytes`` together.

        Nothing comes when nothing was put in time, or when somebody called `wake`.
        """
        with self._changed:
            if not self._items and not self._woken:
                self._changed.wait(timeout_s)
            self._woken = False
            taken: list[T] = []
            size = 0
            while self._items and (not taken or size + self._items[0][1] <= most_bytes):
                item, nbytes = self._items.popleft()
                size += nbytes
                taken.append(item)
            self.held_bytes -= size
            self._changed.notify_all()
            return taken

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
            self.held_bytes = 0
            self._changed.notify_all()
