"""Who tells streams of news: one thread of a worker, for all its logs.

A log is written by another process, which tells of its progress in a page of memory (`headrace.changelog.tail`). The
thread looks at the pages of those logs that somebody waits for; a look costs a microsecond.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable

from headrace.changelog.tail import TailView
from headrace.errors import CorruptSegment
from headrace.relay.server.feed import Feed, Turn

__all__ = ["LookOut"]

_SHORTEST_S = 0.0001
_LONGEST_S = 0.002
_QUIET_SHARE = 64
"""After a quiet time the next look may come after this part of it: who is late by that much is not late."""
_SEND_S = 0.0001
"""About what it costs, on two cores, to send and to take one small block. Streams together are not told of news more
often than that allows: what came in between goes in one piece, where each block alone would make all of them fall
behind. Twice as much made forty streams a third slower; less does not make them faster, and a hundred fall behind."""
_LONGEST_PACE_S = 0.02


class LookOut:
    """The thread that looks at the tails of the feeds that are awaited; at none when nobody waits."""

    def __init__(self, feeds: Iterable[Feed], loop: asyncio.AbstractEventLoop) -> None:
        self._watched = [_Watched(feed) for feed in feeds]
        self._loop = loop
        self._wanted = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="look-out", daemon=True)
        self._thread.start()

    def attend(self) -> None:
        """Begin to look, where nobody has waited before."""
        if not self._wanted.is_set():
            self._wanted.set()

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        heard_at = time.monotonic()
        while not self._closed:
            awaited = [watched for watched in self._watched if watched.feed.is_awaited]
            if not awaited:
                self._wanted.clear()
                if not any(watched.feed.is_awaited for watched in self._watched):
                    self._wanted.wait()
                continue
            now = time.monotonic()
            for watched in awaited:
                if watched.due_at <= now and (turns := watched.to_tell(now)):
                    heard_at = now
                    if not self._tell(watched.feed, turns):
                        return
            time.sleep(_pause_s(now, heard_at, min(watched.due_at for watched in awaited)))

    def _tell(self, feed: Feed, turns: list[Turn]) -> bool:
        try:
            self._loop.call_soon_threadsafe(feed.wake, turns)
        except RuntimeError:
            # The loop has been closed in the meantime.
            return False
        return True


def _pause_s(now: float, heard_at: float, due_at: float) -> float:
    """Return for how long nobody has to look: not before anybody may be told. Others may come to wait meanwhile."""
    return min(max((now - heard_at) / _QUIET_SHARE, _SHORTEST_S, due_at - now), _LONGEST_S)


class _Watched:
    """A feed as the thread sees it.

    Attributes:
        feed: the feed.
        due_at: when somebody may be told next.
    """

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.due_at = 0.0
        self._view = TailView(feed.source.log)
        self._told: dict[Turn, int] = {}
        self._next = 0

    def to_tell(self, now: float) -> list[Turn]:
        """Return the turn that is to be told at a time, as told; all of them where none was for long."""
        try:
            sequence = self._view.sequence()
        except (CorruptSegment, OSError):
            # Whoever is told looks for himself, and names it.
            sequence = -2
        turns = self.feed.turns[self._next :] + self.feed.turns[: self._next]
        waiting = [turn for turn in turns if turn.is_awaited and self._told.get(turn) != sequence]
        if not waiting:
            return []
        pace_s = min(self.feed.streams * _SEND_S, _LONGEST_PACE_S)
        if now - self.due_at < pace_s:
            del waiting[1:]
            self._next = (self.feed.turns.index(waiting[0]) + 1) % len(turns)
        self._told.update(dict.fromkeys(waiting, sequence))
        self.due_at = now + pace_s / max(1, sum(turn.streams > 0 for turn in turns))
        return waiting
