"""A cursor over the bytes of one event; every step past the end is a `ProtocolError`."""

from __future__ import annotations

from headrace.errors import ProtocolError

__all__ = ["Reading", "bit_places", "broken"]


class Reading:
    """Takes values off the front of a stretch of bytes.

    Args:
        data: the event.
        at: the first byte to read.
        end: behind the last one.
    """

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data = data
        self.at = at
        self.end = end

    @property
    def left(self) -> int:
        """Bytes that are not taken yet."""
        return self.end - self.at

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        at = self.at + count
        if count < 0 or at > self.end:
            raise broken("an event ends inside a value")
        found = self.data[self.at : at]
        self.at = at
        return found

    def number(self, width: int) -> int:
        """Return the next little-endian number without a sign."""
        return int.from_bytes(self.take(width), "little")

    def length(self) -> int:
        """Return the next length-encoded number."""
        first = self.number(1)
        if first < 0xFB:
            return first
        if first in (0xFB, 0xFF):
            raise broken("a length has no form that is known")
        return self.number({0xFC: 2, 0xFD: 3, 0xFE: 8}[first])

    def counted(self) -> bytes:
        """Return the next bytes behind their length-encoded count."""
        return self.take(self.length())

    def text(self, count: int) -> str:
        """Return the next bytes as text."""
        try:
            return self.take(count).decode()
        except UnicodeDecodeError:
            raise broken("a name is not UTF-8") from None

    def bits(self, count: int) -> bytes:
        """Return the next bit mask of ``count`` bits."""
        return self.take((count + 7) // 8)


def bit_places(mask: bytes, count: int) -> list[int]:
    """Return which of ``count`` bits are set, the least significant of each byte first."""
    return [place for place in range(count) if mask[place >> 3] >> (place & 7) & 1]


def broken(what: str) -> ProtocolError:
    """Return the error for bytes that do not follow the protocol."""
    return ProtocolError(
        f"binary log: {what}.",
        next_step="report it with the server's version; capture stops rather than guess.",
    )
