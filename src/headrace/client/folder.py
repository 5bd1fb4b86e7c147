"""A change log's folder in the place of a relay: for programs on the machine of the capture, without a process between.

In: the files that the capture writes, mapped. Out: what a relay over them would answer, of which nothing is copied;
filters are carried out here. The log's own package is loaded with the first such address.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from headrace.changelog import Spot, StretchReader
from headrace.changelog.identity import identity_of
from headrace.changelog.merging import Stored
from headrace.client.frames import Note
from headrace.client.outline import Outline
from headrace.client.transport import StreamRequest
from headrace.errors import (
    BlockTooLarge,
    ConfigError,
    NotServed,
    RelayUnavailable,
    ScnNotFound,
    StateError,
)
from headrace.model.schema import TableSchema
from headrace.registry.file import FileRegistry
from headrace.wire.block import BlockFrame, encode_block, read_header
from headrace.wire.filters import BoundFilter, parse_filter

__all__ = ["FolderRelay", "folder_of"]

_STEP_BYTES = 2**30
"""Looked through at once for a place; nobody else has to have a turn meanwhile."""
_ROUND_BYTES = 2**20
"""Looked at together."""
_SHORTEST_S = 0.0005
_LONGEST_S = 0.02
"""Between two looks at a log in which nothing is new: from the first to the second, twice as long each time."""


def folder_of(url: str) -> Path:
    """Return the folder of an address ``file:///FOLDER``.

    Raises:
        ConfigError: it is none.
    """
    parts = urlsplit(url)
    path = Path(unquote(parts.path))
    if parts.scheme != "file" or parts.netloc or not path.is_absolute():
        raise ConfigError(
            f"{url!r} is no folder of a change log.",
            next_step="write file:///STATE/changelog, with the whole path of the folder.",
        )
    return path


class FolderRelay:
    """What `headrace.client.transport.Relay` is, over a folder. Used from one thread; `interrupt` from any.

    Args:
        url: ``file:///FOLDER``.
        max_block_bytes: a larger block is refused.

    Raises:
        ConfigError: the address does not read.
    """

    def __init__(self, url: str, max_block_bytes: int = 2 * 2**30) -> None:
        self.url = url
        self._folder = folder_of(url)
        self._max_block_bytes = max_block_bytes
        self._interrupted = threading.Event()

    def source(self, name: str) -> dict[str, Any]:
        """Return what there is, under whatever name it is asked for: a folder holds one source.

        Raises:
            ChangeLogError: its log cannot be read.
        """
        reader = self._looked()
        tail = reader.tail
        return {
            "name": name,
            "state": "running" if reader.exists else "none",
            "oldest_scn": tail.oldest_scn,
            "complete_scn": tail.complete_scn,
            "covered_scn": tail.covered_scn,
            "last_commit_us": tail.last_commit_us,
        }

    def schemas(self, source: str, ids: Iterable[int]) -> list[TableSchema]:
        """Return table versions.

        Raises:
            NotServed: one of them was never kept.
        """
        try:
            return [self._registry.get(schema_id) for schema_id in ids]
        except StateError as error:
            raise NotServed(
                f"The change log of {source} in {self._folder} lacks a table version ({error.message})",
                next_step="restore the folder schemas inside it.",
            ) from error

    def buffer(self, source: str) -> dict[str, Any]:
        """Refuse: nobody asks a folder for its segments."""
        raise self._has_no("list of segments", source)

    def outline(self, source: str, after: int, upto: int) -> Outline:
        """Refuse: Spark reads folders by itself."""
        del after, upto
        raise self._has_no("outline", source)

    def routes(self) -> dict[str, Any]:
        """Return a document that names nobody."""
        return {"version": 0, "sources": {}}

    def dump(self, source: str) -> dict[str, Any]:
        """Refuse: a folder takes no commands."""
        raise self._has_no("capture that could be told anything", source)

    def stream(self, request: StreamRequest) -> FolderStream:
        """Begin a stream.

        Raises:
            ScnNotFound: the log does not hold the place.
            RelayUnavailable: there is no log yet.
            BadFilter: the filter does not read.
            ChangeLogError: the log cannot be read.
        """
        self._interrupted.clear()
        reader = self._looked()
        if not reader.exists:
            raise RelayUnavailable(
                f"There is no change log in {self._folder} yet.",
                next_step="start its capture: headrace run FILE; tried again.",
            )
        bound = None
        if request.filter is not None:
            bound = parse_filter(request.filter).bound(self._registry.get)
        return FolderStream(reader, request, bound, self._max_block_bytes, self._interrupted)

    def interrupt(self) -> None:
        """Make whatever waits for this folder fail at once; from any thread."""
        self._interrupted.set()

    def close(self) -> None:
        """Do nothing: files are let go of with the last row that lies in them."""

    @property
    def _registry(self) -> FileRegistry:
        return FileRegistry(self._folder / "schemas")

    def _looked(self) -> StretchReader:
        reader = StretchReader(self._folder)
        reader.look()
        return reader

    def _has_no(self, what: str, source: str) -> NotServed:
        return NotServed(
            f"The folder of {source} has no {what}.", next_step="ask a relay of the source."
        )


class FolderStream:
    """What `headrace.client.transport.Stream` is, over a folder.

    Attributes:
        oldest_scn: what the log held when the stream began.
        covered_scn: likewise, its newest.
        log: identity of the log, empty when it has none.
        routes: 0, for no document.
    """

    routes = 0

    def __init__(
        self,
        reader: StretchReader,
        request: StreamRequest,
        filter_: BoundFilter | None,
        max_block_bytes: int,
        interrupted: threading.Event,
    ) -> None:
        self._reader = reader
        self._life = reader.life
        self._request = request
        self._filter = filter_
        self._max_block_bytes = max_block_bytes
        self._interrupted = interrupted
        self.oldest_scn, self.covered_scn = reader.tail.oldest_scn, reader.tail.covered_scn
        self._spot = self._begin()
        self.log = identity_of(reader.folder)
        self._told_scn = self._spot.covered_scn
        self._waiting: list[Stored] = []
        self._left = request.max_bytes
        self._has_begun = False
        self._ended = False

    def frames(self) -> Iterator[BlockFrame | Note]:
        """Yield blocks and notes as they come, the last one a note ``end``; errors as of `next`."""
        while (frame := self.next()) is not None:
            yield frame

    def next(self, wait_s: float | None = None) -> BlockFrame | Note | None:
        """Return the next frame; None behind the note ``end``, or when nothing came in time.

        Args:
            wait_s: how long to wait for something; None for as long as it takes.

        Raises:
            RelayUnavailable: somebody interrupted it, or another log lies in the folder now.
            ScnNotFound: what follows was dropped.
            BlockTooLarge: a block is larger than this client takes, or the first one than a pull.
            CorruptSegment: what follows is damaged.
        """
        pause_s = _SHORTEST_S
        deadline = self._deadline(wait_s)
        while not self._ended:
            if (frame := self._following()) is not None:
                self._has_begun = True
                return frame
            left_s = pause_s if deadline is None else deadline - time.monotonic()
            if left_s <= 0:
                return self._end("drained") if self._request.pull else None
            if self._interrupted.wait(min(pause_s, left_s)):
                raise RelayUnavailable(
                    "Reading the change log's folder was interrupted.",
                    next_step="none: somebody wanted that.",
                )
            pause_s = min(2 * pause_s, _LONGEST_S)
        return None

    @property
    def has_more(self) -> bool:
        """Whether the next block was looked at already."""
        return bool(self._waiting)

    def _deadline(self, wait_s: float | None) -> float | None:
        """Return until when to wait, monotonic; None for ever."""
        if self._request.pull:
            # Only the first block is waited for, and as long as the request says.
            wait_s = 0.0 if self._has_begun else self._request.wait_ms / 1000
        return None if wait_s is None else time.monotonic() + wait_s

    def _begin(self) -> Spot:
        request, reader = self._request, self._reader
        if request.since_us is not None:
            after_scn = reader.since(request.since_us)
        else:
            assert request.after is not None
            after_scn = request.after.after_scn
            if request.after.scn > self.covered_scn:
                raise ScnNotFound(request.after.scn, self.oldest_scn, self.covered_scn)
        while (spot := reader.find(after_scn, _STEP_BYTES)) is None:
            pass
        if request.after is None or request.after.whole:
            return spot
        # A pull may end within a transaction: what of it was processed is passed over, else no pull would get further.
        return reader.behind(spot, request.after.scn, request.after.ord)

    def _following(self) -> BlockFrame | Note | None:
        """Return what follows without waiting, None when nothing does yet."""
        upto = self._request.upto
        if upto is not None and self._told_scn >= upto:
            return self._end("upto")
        if not self._waiting:
            self._look()
            self._waiting = self._reader.blocks(self._spot, _ROUND_BYTES)
        if not self._waiting:
            return self._covered()
        stored = self._waiting[0]
        header = stored.header
        if upto is not None and header.transactions and header.first_scn > upto:
            return self._end("upto")
        frame = self._frame(stored)
        if self._request.pull and len(frame.data) > self._left:
            if not self._has_begun:
                raise BlockTooLarge(len(frame.data))
            return self._end("size")
        self._left -= len(frame.data)
        del self._waiting[0]
        self._told_scn = max(self._told_scn, header.covered_scn, header.complete_scn)
        self._spot = Spot(stored.segment.name, stored.offset + header.length, self._told_scn)
        return frame

    def _look(self) -> None:
        """Take notice of what was published, unless another log has taken the place of the one that was begun."""
        self._reader.look()
        if self._reader.life != self._life:
            raise RelayUnavailable(
                "Another change log lies in the folder than when this stream began.",
                next_step="none: it is asked for again, by its SCN.",
            )

    def _frame(self, stored: Stored) -> BlockFrame:
        header = stored.header
        if header.length > self._max_block_bytes:
            error = BlockTooLarge(header.length)
            error.next_step = f"set max_block_bytes to {header.length} or more."
            raise error
        if self._filter is None:
            return BlockFrame(header, stored.segment.bytes_of(stored.offset, header.length))
        block = stored.segment.decode(stored.offset, header.length, None)
        data = memoryview(encode_block(self._filter.apply(block)))
        return BlockFrame(read_header(data), data)

    def _covered(self) -> Note | None:
        """Return how far the log is covered where no block says so."""
        covered = self._reader.tail.covered_scn
        if covered <= self._told_scn:
            return None
        self._told_scn = covered
        self._spot = self._spot._replace(covered_scn=covered)
        return Note("heartbeat", {"covered_scn": covered})

    def _end(self, reason: str) -> Note:
        self._ended = True
        return Note("end", {"reason": reason})
