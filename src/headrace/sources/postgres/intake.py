"""A busy stream's socket is emptied by a thread of its own.

A Unix socket holds some hundred messages, a thousandth of a second of a busy server's work. Whoever decodes, writes and
syncs takes longer, and the server would wait for it each time. The thread runs in C without the interpreter, only while
much comes: where little comes, a hand-over between threads would be most of a change's latency.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from headrace.sources.postgres.decoder import engine

__all__ = ["GATHER_S", "Intake", "make_intake"]

GATHER_S = 0.00015
"""How long a busy socket is left alone between two reads, so that much comes at once. A Unix socket holds some hundred
messages, half a thousandth of a second of a fast server's: with twice this pause that server waited a fifth of its
time. Over TCP the kernel's queue of small segments may overflow."""

_RING_BYTES = 4 << 20
_QUIET_MS = 20
_LEAST_BYTES = 1 << 18
_WAIT_US = 5_000


class Intake:
    """Reads a socket ahead of whoever takes.

    Args:
        descriptor: of the socket, which does not block; it stays the caller's.
    """

    def __init__(self, descriptor: int) -> None:
        from headrace.sources.postgres._native import NativeIntake

        self._ring = NativeIntake(descriptor, _RING_BYTES)
        self._thread = ThreadPoolExecutor(1, "headrace-intake")

    @property
    def running(self) -> bool:
        """Whether bytes come, and must be taken, through here."""
        return self._ring.running

    def begin(self) -> None:
        """Read from now on, until nothing comes for a while."""
        self._ring.begin()
        self._thread.submit(self._ring.run, round(GATHER_S * 1e6), _QUIET_MS)

    def read_into(self, view: memoryview) -> int:
        """Move what has come into ``view``, after a short wait for much; return its bytes.

        Raises:
            OSError: the socket failed, `errno.EPIPE` when its other end was closed. All bytes before that were taken.
        """
        size = self._ring.take(view, min(_LEAST_BYTES, len(view)), _WAIT_US)
        if not size and not self._ring.running and self._ring.error:
            raise OSError(self._ring.error, os.strerror(self._ring.error))
        return size

    def close(self) -> None:
        """End the thread; the socket may be closed then."""
        self._ring.stop()
        self._thread.shutdown()


def make_intake(descriptor: int) -> Intake | None:
    """Return an intake for a socket, None where headrace was installed without its C parts."""
    return Intake(descriptor) if engine() == "native" else None
