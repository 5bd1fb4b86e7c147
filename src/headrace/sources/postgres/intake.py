"""A busy stream's socket is emptied by a thread of its own.

A Unix socket holds some hundred messages, a thousandth of a second of a busy server's work. Whoever decodes, writes and
syncs takes longer, and the server would wait for it each time. The thread runs in C without the interpreter, only while
much comes: where little comes, a hand-over between threads would be most of a change's latency.
"""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor

from headrace.processors import ask_for_slices, has_two
from headrace.sources.postgres.decoder import engine

__all__ = ["PROMPT_READS", "PROMPT_S", "TCP_GATHER_S", "Intake", "gather_s", "make_intake"]

_GATHER_S = 0.0001
"""A Unix socket holds some hundred messages, half a thousandth of a second of a fast server's: with three times this
pause that server waited a fifth of its time."""

TCP_GATHER_S = 0.0003
"""TCP holds more, and the server's kernel joins what it writes into large packets while it waits for our answers. With
pauses of half a millisecond it falls more often into sending each message by itself, for the rest of the stream, which
costs both sides half as much again; with shorter ones each read brings less."""

PROMPT_S = _GATHER_S
PROMPT_READS = 30
"""So many reads at the begin of a stream, and behind each moment in which nothing was there, follow each other this
fast. By them the server's kernel learns how short the way is, and how little need be under way: it joins what comes
behind. A reader that begins with long pauses teaches it the contrary, and it sends each message by itself."""

_RING_BYTES = 4 << 20
_QUIET_MS = 20
_LEAST_BYTES = 1 << 18
_WAIT_US = 5_000
_LITTLE_BYTES = 16_384
_LITTLE_TIMES = 4
"""Where so often no more than that has come in the wait above, a few megabytes a second, no change should wait."""

_SLICE_NS = 100_000
"""Where the thread shares a processor with whoever takes it goes first: it works for microseconds at a time."""


def gather_s(source: socket.socket) -> float:
    """Return how long a busy socket is left alone between two reads, in seconds, so that much comes at once."""
    return _GATHER_S if source.family == socket.AF_UNIX else TCP_GATHER_S


class Intake:
    """Reads a socket ahead of whoever takes.

    Args:
        source: a socket that does not block; it stays the caller's.
    """

    def __init__(self, source: socket.socket) -> None:
        from headrace.sources.postgres._native import NativeIntake

        self._ring = NativeIntake(source.fileno(), _RING_BYTES)
        self._local = source.family == socket.AF_UNIX
        self._pauses_us = round(gather_s(source) * 1e6), round(PROMPT_S * 1e6)
        self._thread = ThreadPoolExecutor(1, "headrace-intake")
        self._little = 0

    @property
    def running(self) -> bool:
        """Whether bytes come, and must be taken, through here."""
        return self._ring.running

    def begin(self) -> None:
        """Read from now on, until nothing comes for a while, or little."""
        self._little = 0
        self._ring.begin()
        self._thread.submit(self._run)

    def _run(self) -> None:
        """Fill the ring; of a server on this machine's two processors one is left to it.

        Wherever this thread wakes, ten thousand times a second, it would else take the processor from the server as
        often as from whoever takes, and the server loses its caches each time.
        """
        follow = self._local and has_two()
        if follow:
            allowed = os.sched_getaffinity(0)
            ask_for_slices(_SLICE_NS)
        self._ring.run(*self._pauses_us, PROMPT_READS, _QUIET_MS, follow)
        if follow:
            os.sched_setaffinity(0, allowed)

    def read_into(self, view: memoryview, *, busy: bool = True) -> int:
        """Move what has come into ``view``, after a short wait for much; return its bytes.

        Args:
            view: has room.
            busy: none of it is urgent: go on however little comes.

        Raises:
            OSError: the socket failed, `errno.EPIPE` when its other end was closed. All bytes before that were taken.
        """
        size = self._ring.take(view, min(_LEAST_BYTES, len(view)), _WAIT_US)
        if not size and not self._ring.running and self._ring.error:
            raise OSError(self._ring.error, os.strerror(self._ring.error))
        self._little = 0 if busy or size > _LITTLE_BYTES else self._little + 1
        if self._little >= _LITTLE_TIMES:
            self._ring.leave()
        return size

    def close(self) -> None:
        """End the thread; the socket may be closed then."""
        self._ring.stop()
        self._thread.shutdown()


def make_intake(source: socket.socket) -> Intake | None:
    """Return an intake for a socket, None where headrace was installed without its C parts."""
    return Intake(source) if engine() == "native" else None
