"""What filters leave of blocks, each worked out once per filter and block, whoever asks.

It is worked out in one thread beside the event loop, so that nobody else waits for it, and kept for the next who asks
while there is room.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

from headrace.changelog.merging import Stored
from headrace.changelog.segment import corrupt
from headrace.errors import ProtocolError
from headrace.relay.server.counters import Counters
from headrace.relay.server.feed import Feed
from headrace.relay.server.supply import Piece
from headrace.wire.block import encode_block
from headrace.wire.filters import BoundFilter, Filter
from headrace.wire.filters.stored import is_whole, left_of

__all__ = ["Filtering"]

_KEPT_BYTES = 64 * 2**20
_BESIDE_BYTES = 2048
"""What it takes to keep the least: of most blocks of a busy log a filter may leave no more than how far they go."""
_MOST_FILTERS = 1024


class _Key(NamedTuple):
    source: str
    filter: Filter
    mapping: int
    offset: int


class Filtering:
    """The filters of one worker. Used from the event loop."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._kept: OrderedDict[_Key, asyncio.Future[Piece]] = OrderedDict()
        self._kept_bytes = 0
        self._bound: OrderedDict[tuple[str, Filter], BoundFilter] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, "filters")

    async def left(self, feed: Feed, filter_: Filter, block: Stored) -> Piece:
        """Return what a filter leaves of a block.

        Raises:
            BadFilter: it does not fit the tables.
            CorruptSegment: the block is damaged.
        """
        bound = self._bind(feed, filter_)
        if bound.tables_only and _is_whole(bound, block):
            # Nothing is kept of it: that would keep the file of a segment that is dropped.
            return Piece(_bytes_of(block), False)
        key = _Key(feed.name, filter_, block.segment.mapping, block.offset)
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return await asyncio.shield(found)
        done = asyncio.get_running_loop().run_in_executor(self._thread, _apply, bound, block)
        self._counters.add("filters_applied_total", feed.name)
        self._kept[key] = done
        try:
            piece = await asyncio.shield(done)
        except Exception:
            # Not an answer for the next who asks: a registry may have been restored by then.
            self._kept.pop(key, None)
            raise
        self._keep(piece)
        return piece

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(cancel_futures=True)

    def _bind(self, feed: Feed, filter_: Filter) -> BoundFilter:
        bound = self._bound.get((feed.name, filter_))
        if bound is None:
            bound = self._bound[feed.name, filter_] = filter_.bound(feed.registry.get)
            if len(self._bound) > _MOST_FILTERS:
                self._bound.popitem(last=False)
        return bound

    def _keep(self, piece: Piece) -> None:
        """Make room for one more."""
        self._kept_bytes += len(piece.data) + _BESIDE_BYTES
        while self._kept_bytes > _KEPT_BYTES:
            oldest = next(iter(self._kept))
            if not self._kept[oldest].done():
                self._kept.move_to_end(oldest)
                continue
            self._kept_bytes -= len(self._kept.pop(oldest).result().data) + _BESIDE_BYTES


def _bytes_of(block: Stored) -> memoryview:
    return block.segment.bytes_of(block.offset, block.header.length)


def _is_whole(bound: BoundFilter, block: Stored) -> bool:
    with _told(block):
        return is_whole(bound, _bytes_of(block), block.header)


def _apply(bound: BoundFilter, block: Stored) -> Piece:
    if bound.tables_only:
        with _told(block):
            data, bare = left_of(bound, _bytes_of(block), block.header)
        # A copy, as above.
        return Piece(bytes(data), bare)
    left = bound.apply(block.segment.decode(block.offset, block.header.length, None))
    return Piece(encode_block(left), not len(left.index))


@contextmanager
def _told(block: Stored) -> Iterator[None]:
    """Say which block is damaged."""
    try:
        yield
    except ProtocolError as error:
        raise corrupt(block.segment.name, block.offset, error.message) from error
