"""One change log as all streams of a worker see it: one reader for all, and turns in which they are told of news."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from headrace.changelog import Spot, Stretch, StretchReader, Tail
from headrace.changelog.identity import identity_of
from headrace.errors import RelayUnavailable, ScnNotFound
from headrace.registry.file import FileRegistry
from headrace.relay.server.joining import Joining
from headrace.relay.server.settings import ServedSource
from headrace.wire.place import Place

__all__ = ["Feed", "Turn"]

_STEP_BYTES = 4 * 2**20
"""How much of a segment is looked through at once, before others have their turn."""
_TURNS = 4
"""Into how many parts streams are told of news, one behind the other. Whoever is told waits for all that are told with
him: forty at once have half of that burst before them, ten a quarter of that. With more turns the relay does what it
does for each so often that it takes the processor from its readers."""
_TURN_STREAMS = 10
"""Fewer streams have one turn: they are served before the next would come."""
_MOST_FOUND = 64
"""Places between two looks at which what follows is kept: those who are at the end stand at one."""


class Turn:
    """Streams that are told of news together.

    Attributes:
        streams: how many they are.
        told: how often those that waited were told.
    """

    def __init__(self) -> None:
        self.streams = self.told = 0
        self._news: asyncio.Future[None] | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for news."""
        return self._news is not None

    def news(self) -> asyncio.Future[None]:
        """Return what is done when something new may have come, or a while has passed. Not to be cancelled."""
        if self._news is None:
            self._news = asyncio.get_running_loop().create_future()
        return self._news

    def wake(self) -> None:
        """Let those look who wait."""
        self.told += 1
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)


class Feed:
    """Used from the event loop alone.

    Attributes:
        source: whose log it is.
        reader: of its bytes.
        registry: its table versions.
        turns: in which streams are told of news.
        joining: of its small blocks.
    """

    def __init__(self, source: ServedSource) -> None:
        self.source = source
        self.turns = tuple(Turn() for _ in range(_TURNS))
        self.joining = Joining()
        self.reader = StretchReader(source.log)
        self.registry = FileRegistry(source.registry)
        self._told, self._looked = 0, -1
        self._found: dict[tuple[Spot, int, int], Stretch | None] = {}
        self._found_at: Tail | None = None

    @property
    def name(self) -> str:
        """Under which it is asked for."""
        return self.source.name

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for news."""
        return any(turn.is_awaited for turn in self.turns)

    @property
    def streams(self) -> int:
        """How many are open."""
        return sum(turn.streams for turn in self.turns)

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

    @contextmanager
    def joined(self) -> Iterator[Turn]:
        """Give the turn in which one more stream is told."""
        fewest = min(self.turns, key=lambda turn: turn.streams)
        turn = next((turn for turn in self.turns if turn.streams < _TURN_STREAMS), fewest)
        turn.streams += 1
        try:
            yield turn
        finally:
            turn.streams -= 1

    def wake(self, turns: Iterable[Turn] | None = None) -> None:
        """Let those look who wait: in all turns, or in some."""
        self._told += 1
        for turn in self.turns if turns is None else turns:
            turn.wake()

    def look(self) -> None:
        """Take notice of what was published, once for all who were told of it.

        Raises:
            ChangeLogLost: or `CorruptSegment`, as `StretchReader.look`; each time.
        """
        if self._looked != self._told:
            self.reader.look()
            self._looked = self._told

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
