"""A buffer of bytes between whoever delivers them and the decoder that walks over whole frames."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["FrameBuffer"]

_ROOM = 1 << 20


class FrameBuffer:
    """Bytes of which ``start`` to ``end`` are not decoded yet.

    Attributes:
        data: the memory; replaced when a frame needs more.
    """

    def __init__(self, room: int = _ROOM) -> None:
        self._least = room
        self.data = bytearray(room)
        self.start = 0
        self.end = 0

    def fill(self, read_into: Callable[[memoryview], int]) -> int:
        """Let ``read_into`` add bytes behind what is there; return how many it added."""
        self._make_room()
        with memoryview(self.data) as view:
            added = read_into(view[self.end :])
        self.end += added
        return added

    def add(self, *parts: bytes) -> None:
        """Add bytes behind what is there."""
        for part in parts:
            while len(self.data) - self.end < len(part):
                self._grow(self.end - self.start + len(part))
            self.data[self.end : self.end + len(part)] = part
            self.end += len(part)

    def _make_room(self) -> None:
        if self.start == self.end:
            self.start = self.end = 0
        elif len(self.data) - self.end < self._least // 4:
            self._grow(self.end - self.start + self._least // 2)

    def _grow(self, needed: int) -> None:
        """Move what is left to the front, of a larger memory when it must be."""
        left = self.data[self.start : self.end]
        if needed > len(self.data):
            # A frame of many megabytes: twice as much each time, so that it is not copied too often.
            self.data = bytearray(max(2 * len(self.data), needed))
        elif needed <= self._least < len(self.data) and len(left) < self._least // 2:
            self.data = bytearray(self._least)
        self.data[: len(left)] = left
        self.start, self.end = 0, len(left)
