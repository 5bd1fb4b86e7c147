"""Packets of the client protocol, read from a connection in large pieces.

A packet is a 3-byte little-endian length, a sequence number, and the payload. A payload of 16,777,215 bytes goes on in
the next packet.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

from headrace.errors import SourceUnavailable

__all__ = ["PacketReader", "is_end"]

_MOST = (1 << 24) - 1
_PIECE = 1 << 18
# How long one wait lasts where it is made again until something comes.
_WAIT_S = 60.0


_END, _LONGEST_END = 0xFE, 8


def is_end(first: int, size: int) -> bool:
    """Return whether a payload ends rows or a log; one that begins alike and is longer begins with a cell of 16 MB.

    Args:
        first: its first byte.
        size: its length in bytes.
    """
    return first == _END and size <= _LONGEST_END


class PacketReader:
    """Payloads from a connection.

    Args:
        socket: connected and, where asked for, encrypted; nothing of it must have been read ahead. Or what reads like
            one.
        ahead: bytes that may be read ahead.
    """

    def __init__(self, socket: Any, ahead: int = _PIECE) -> None:
        self._socket = socket
        self._data = bytearray(ahead)
        self._start = 0
        self._end = 0
        self._parts: list[bytes] = []

    def next(self, timeout_s: float) -> bytes | None:
        """Return the next payload, None when it has not come whole in time.

        Raises:
            SourceUnavailable: the connection is gone.
        """
        while self.ready(timeout_s):
            start = self._start + 4
            size = self._size() or 0
            self._start = start + size
            payload = bytes(memoryview(self._data)[start : start + size])
            if size == _MOST:
                self._parts.append(payload)
                continue
            if self._parts:
                payload = b"".join((*self._parts, payload))
                self._parts = []
            return payload
        return None

    def ready(self, timeout_s: float) -> bool:
        """Return whether a whole packet is there, False when it has not come in time; raises likewise."""
        while True:
            size = self._size()
            if size is not None and self._end - self._start >= 4 + size:
                return True
            self._make_room(4 + (size or 0))
            if not self._fill(timeout_s):
                return False

    def whole(self) -> bytes:
        """Return the next payload, however long that takes; likewise."""
        payload = None
        while payload is None:
            payload = self.next(_WAIT_S)
        return payload

    def more(self) -> None:
        """Read once; likewise. What has been read must hold no whole packet."""
        self._make_room(4 + (self._size() or 0))
        self._fill(_WAIT_S)

    def read_ahead(self) -> bool:
        """Read once without waiting, where there is room; return whether anything came; raises likewise."""
        held, half = self._end - self._start, len(self._data) // 2
        # In small pieces it would cost more than it brings; so would moving more than was taken since the last move.
        if len(self._data) - self._end < half and held > self._start:
            return False
        self._make_room(held + half)
        return self._fill(0.0)

    def hand(self, take: Callable[[bytearray, int, int], int]) -> bool:
        """Let somebody take whole packets from what has been read; return whether any was taken.

        A payload of several packets is not handed out.

        Args:
            take: gets what holds the packets, where the first of them begins and where the last one ends, which may be
                cut off; returns the place behind those that it took.
        """
        if self._parts:
            return False
        before, self._start = self._start, take(self._data, self._start, self._end)
        return self._start > before

    @property
    def ahead(self) -> bool:
        """Whether more has been read than was handed out."""
        return self._end > self._start

    def _size(self) -> int | None:
        """Return the length of the next packet's payload, None where its header has not come."""
        if self._end - self._start < 4:
            return None
        return int.from_bytes(self._data[self._start : self._start + 3], "little")

    def _make_room(self, size: int) -> None:
        """Move what is held to the front where the packet, or a fresh piece, would not fit behind it."""
        held = self._end - self._start
        wanted = max(size, held + 1)
        if self._start and (
            self._start + wanted > len(self._data) or len(self._data) - self._end < 4096
        ):
            self._data[:held] = self._data[self._start : self._end]
            self._start, self._end = 0, held
        if wanted > len(self._data):
            self._data += bytes(wanted - len(self._data))

    def _fill(self, timeout_s: float) -> bool:
        """Read once; return whether anything came."""
        self._socket.settimeout(max(timeout_s, 0.0))
        try:
            count = self._socket.recv_into(memoryview(self._data)[self._end :])
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError as error:
            raise _gone(type(error).__name__) from error
        if not count:
            raise _gone("closed")
        self._end += count
        return True


def _gone(why: str) -> SourceUnavailable:
    return SourceUnavailable(
        f"The connection to the server is gone ({why}).",
        next_step="nothing: it is made again.",
    )
