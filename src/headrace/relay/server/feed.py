"""One change log as all streams of a worker see it: one reader, and one look-out for whoever waits.

A log is written by another process, which tells of its progress in a page of memory (`headrace.changelog.tail`). One
thread looks at the pages of those logs that somebody waits for; a look costs a microsecond.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable

from headrace.changelog import Spot, Stretch, StretchReader, Tail
from headrace.changelog.identity import identity_of
from headrace.changelog.tail import TailView
from headrace.errors import CorruptSegment, RelayUnavailable, ScnNotFound
from headrace.registry.file import FileRegistry
from headrace.relay.server.joining import Joining
from headrace.relay.server.settings import ServedSource
from headrace.wire.place import Place

__all__ = ["Feed", "LookOut"]

_STEP_BYTES = 4 * 2**20
"""How much of a segment is looked through at once, before others have their turn."""
_SHORTEST_S = 0.0001
_LONGEST_S = 0.002
_QUIET_SHARE = 64
"""After a quiet time the next look may come after this part of it: who is late by that much is not late."""
_SEND_S = 0.0001
"""About what it costs, on two cores, to send and to take one small block. Streams together are not told of news more
often than that allows: what came in between goes in one piece, where each block alone would make all of them fall
behind. Twice as much made forty streams a third slower; less does not make them faster, and a hundred fall behind."""
_LONGEST_PACE_S = 0.02
_MOST_FOUND = 64
"""Places between two looks at which what follows is kept: those who are at the end stand at one."""


class Feed:
    """Used from the event loop alone.

    Attributes:
        source: whose log it is.
        reader: of its bytes.
        registry: its table versions.
        streams: how many are open.
        told: how often those that waited were told of news.
        joining: of its small blocks.
    """

    def __init__(self, source: ServedSource) -> None:
        self.source = source
        self.streams = self.told = 0
        self.joining = Joining()
        self.reader = StretchReader(source.log)
        self.registry = FileRegistry(source.registry)
        self._news: asyncio.Future[None] | None = None
        self._looked = -1
        self._found: dict[tuple[Spot, int, int], Stretch | None] = {}
        self._found_at: Tail | None = None

    @property
    def name(self) -> str:
        """Under which it is asked for."""
        return self.source.name

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for news."""
        return self._news is not None

    @property
    def identity(self) -> str:
        """By which ordinals of this log are told from those of others; empty when it has none."""
        return identity_of(self.source.log)

    def tail(self) -> Tail:
        """Return what the log can serve now.

        Raises:
            RelayUnavailable: there is no log yet.
            ChangeLogLost: or another `ChangeLogError`: it cannot be read.
        """
        self.reader.look()
        if not self.reader.exists:
            raise RelayUnavailable(
                f"Source {self.name} has no change log yet.",
                next_step="start its capture: headrace run FILE; then ask again.",
            )
        return self.reader.tail

    async def find(self, place: Place) -> Spot:
        """Return where a consumer that stands at a place goes on.

        Of a transaction that spans blocks, those that lie wholly at or below the place's ordinal are passed over.

        Raises:
            ScnNotFound: the place lies outside what the log holds.
            CorruptSegment: a header on the way is damaged.
        """
        tail = self.reader.tail
        if place.scn > tail.covered_scn:
            raise ScnNotFound(place.scn, tail.oldest_scn, tail.covered_scn)
        while (spot := self.reader.find(place.after_scn, _STEP_BYTES)) is None:
            await asyncio.sleep(0)
            self.reader.look()
        return spot if place.whole else await asyncio.to_thread(self._behind, place)

    async def since(self, commit_us: int) -> int:
        """Return the SCN before the first transaction that committed at or after a time.

        Raises:
            ScnNotFound: or `CorruptSegment`, as `StretchReader.since`.
        """

        def looked_for() -> int:
            reader = StretchReader(self.source.log)
            reader.look()
            return reader.since(commit_us)

        return await asyncio.to_thread(looked_for)

    def news(self) -> asyncio.Future[None]:
        """Return what is done when something new may have come, or a while has passed. Not to be cancelled."""
        if self._news is None:
            self._news = asyncio.get_running_loop().create_future()
        return self._news

    def wake(self) -> None:
        """Let everybody look who waits."""
        self.told += 1
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)

    def look(self) -> None:
        """Take notice of what was published, once for all who were told of it.

        Raises:
            ChangeLogLost: or `CorruptSegment`, as `StretchReader.look`; each time.
        """
        if self._looked != self.told:
            self.reader.look()
            self._looked = self.told

    def after(self, spot: Spot, most_bytes: int, small_bytes: int) -> Stretch | None:
        """Return what follows a spot, as `StretchReader.after`; looked for once for all who stand there.

        Raises:
            ScnNotFound: or `CorruptSegment`, as there.
        """
        if self._found_at is not self.reader.tail:
            self._found_at = self.reader.tail
            self._found.clear()
        key = (spot, most_bytes, small_bytes)
        if key not in self._found:
            if len(self._found) >= _MOST_FOUND:
                self._found.clear()
            self._found[key] = self.reader.after(spot, most_bytes, small_bytes)
        return self._found[key]

    def _behind(self, place: Place) -> Spot:
        reader = StretchReader(self.source.log)
        reader.look()
        while (spot := reader.find(place.after_scn, _STEP_BYTES)) is None:
            pass
        return reader.behind(spot, place.scn, place.ord)


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
                if watched.due_at <= now and watched.has_changed():
                    heard_at = now
                    watched.due_at = now + min(watched.feed.streams * _SEND_S, _LONGEST_PACE_S)
                    if not self._tell(watched.feed):
                        return
            time.sleep(_pause_s(now, heard_at, min(watched.due_at for watched in awaited)))

    def _tell(self, feed: Feed) -> bool:
        try:
            self._loop.call_soon_threadsafe(feed.wake)
        except RuntimeError:
            # The loop has been closed in the meantime.
            return False
        return True


def _pause_s(now: float, heard_at: float, due_at: float) -> float:
    """Return for how long nobody has to look: not before anybody may be told. Others may come to wait meanwhile."""
    return min(max((now - heard_at) / _QUIET_SHARE, _SHORTEST_S, due_at - now), _LONGEST_S)


class _Watched:
    """A feed as the thread sees it."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.due_at = 0.0
        self._view = TailView(feed.source.log)
        self._told: int | None = None

    def has_changed(self) -> bool:
        try:
            sequence = self._view.sequence()
        except (CorruptSegment, OSError):
            # Whoever is told looks for himself, and names it.
            sequence = -2
        changed = sequence != self._told
        self._told = sequence
        return changed
