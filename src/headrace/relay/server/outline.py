"""What a log holds between two places, told without its rows: for whoever cuts the log into pieces of work.

In: a feed, and a range. Out: extents, each of which begins and ends between two transactions: a block, or the blocks
of a transaction that spans several.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.changelog import BlockRef, Spot
from headrace.changelog.refs import block_ref
from headrace.errors import RelayUnavailable
from headrace.relay.server.feed import Feed
from headrace.relay.server.request import number
from headrace.wire.place import Place

__all__ = ["OutlineRequest", "outline"]

_STEP_BYTES = 128 * 1024
"""How much of a log is looked through at once, before others have their turn."""
_MOST_EXTENTS = 4096


@dataclass(frozen=True, slots=True)
class OutlineRequest:
    """A request of ``/outline``; its fields are the protocol's.

    Attributes:
        after: exclusive begin.
        upto: inclusive end, None for the newest.
        most: extents of one answer.
    """

    after: int
    upto: int | None
    most: int

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> OutlineRequest:
        """Return the request that named values make up.

        Raises:
            BadRequest: names the first that does not read.
        """
        most = number(given, "most", least=1, most=_MOST_EXTENTS)
        return cls(number(given, "after") or 0, number(given, "upto"), most or _MOST_EXTENTS)


async def outline(feed: Feed, request: OutlineRequest) -> dict[str, Any]:
    """Return ``/outline``.

    Raises:
        RelayUnavailable: there is no log yet, or it became another one meanwhile.
        ScnNotFound: the begin lies outside what the log holds.
        CorruptSegment: a header or directory in the range is damaged.
    """
    feed.tail()
    spot = await feed.find(Place(request.after))
    life = feed.reader.life
    found: list[_Extent] = []
    open_: _Extent | None = None
    told: int | None = None
    while told is None:
        blocks = feed.reader.blocks(spot, _STEP_BYTES)
        tail = feed.reader.tail
        if not blocks:
            told = tail.covered_scn
        for segment, offset, header in blocks:
            if header.transactions:
                if header.first_scn > _upto(request, header.first_scn):
                    told = header.first_scn - 1
                    break
                if len(found) == request.most:
                    told = found[-1].last_scn
                    break
                open_ = open_ or _Extent(header.first_scn)
                open_.add(block_ref(segment, offset, header))
                if header.ends_complete:
                    found.append(open_)
                    open_ = None
            covered = max(spot.covered_scn, header.covered_scn, header.complete_scn)
            spot = Spot(segment.name, offset + header.length, covered)
        await asyncio.sleep(0)
        if feed.reader.life != life:
            raise RelayUnavailable(
                f"The change log of {feed.name} became another one meanwhile.",
                next_step="none: it is asked for again.",
            )
    return {
        "source": feed.name,
        "oldest_scn": tail.oldest_scn,
        "complete_scn": tail.complete_scn,
        "covered_scn": tail.covered_scn,
        "upto_scn": max(_upto(request, told), request.after),
        "extents": [extent.said for extent in found],
    }


def _upto(request: OutlineRequest, scn: int) -> int:
    return scn if request.upto is None else min(request.upto, scn)


class _Extent:
    """Blocks, added one by one; nothing is kept of each."""

    def __init__(self, first_scn: int) -> None:
        self.last_scn = first_scn
        self._first_scn = first_scn
        self._rows = self._bytes = 0
        self._tables: dict[str, int] = {}

    def add(self, block: BlockRef) -> None:
        """Go on with the next block."""
        self.last_scn = block.last_scn
        self._rows += block.rows
        self._bytes += block.bytes
        for schema_id, rows in block.tables:
            name = f"{schema_id:016x}"
            self._tables[name] = self._tables.get(name, 0) + rows

    @property
    def said(self) -> dict[str, Any]:
        """What the protocol says of it."""
        return {
            "first_scn": self._first_scn,
            "last_scn": self.last_scn,
            "rows": self._rows,
            "bytes": self._bytes,
            "tables": self._tables,
        }
