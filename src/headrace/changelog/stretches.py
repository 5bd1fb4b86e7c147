"""The log as bytes: whole blocks, one behind the other, as views of the mapped files.

In: a folder. Out: places at which blocks begin, and the bytes from there on. Headers are checked, once for all who
read here; bodies are not touched, whoever receives them checks them. Nothing of a transaction that has not ended is
given out: a writer that starts anew cuts that off. Used from one thread.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.changelog.chain import Link
from headrace.changelog.index import STRIDE_BYTES, ScnIndex, walk
from headrace.changelog.mapped import MappedSegment
from headrace.changelog.merging import Stored
from headrace.changelog.opened import OpenedChain
from headrace.changelog.segment import NO_SEGMENT, SEGMENT_HEADER_BYTES, SegmentName, corrupt
from headrace.changelog.tail import Tail
from headrace.errors import ChangeLogError, ProtocolError, ScnNotFound
from headrace.wire.block import join_indexes, read_header, read_index

__all__ = ["Spot", "Stretch", "StretchReader"]

_DAMAGED_FOR_S = 10.0
"""How long damage is believed before it is looked for again."""


class Spot(NamedTuple):
    """Where a block begins, or will.

    Attributes:
        segment: of the log; `NO_SEGMENT` before there is one.
        offset: in its file.
        covered_scn: everything up to here lies before it.
    """

    segment: SegmentName
    offset: int
    covered_scn: int


class Stretch(NamedTuple):
    """Whole blocks.

    Attributes:
        data: their bytes, a view of the mapped file; stays good when the file is dropped.
        end: the spot behind them.
    """

    data: memoryview
    end: Spot


class StretchReader:
    """Reads the log in a folder, which need not exist yet.

    Attributes:
        tail: what the log can serve, as of the last `look`.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._chain = OpenedChain(folder)
        self._clock = clock
        self.tail = Tail()
        self._sequence = -1
        self._damage: ChangeLogError | None = None
        self._again_at = 0.0

    @property
    def folder(self) -> Path:
        """Where the log lies."""
        return self._chain.folder

    @property
    def exists(self) -> bool:
        """Whether there is a log at all."""
        return self._sequence >= 0

    @property
    def life(self) -> int:
        """How often another log was found in the folder; spots of a life before are none any more."""
        return self._chain.life

    @property
    def links(self) -> list[Link]:
        """The log's segments at the last `look`, oldest first."""
        return self._chain.links

    def look(self) -> bool:
        """Take notice of what was published; return whether anything was. Costs a microsecond when not.

        Raises:
            ChangeLogLost: segments are missing.
            CorruptSegment: the tail, or the header of a segment, is damaged.
        """
        sequence = self._chain.sequence()
        if sequence == self._sequence:
            if self._damage is not None and self._clock() < self._again_at:
                raise self._damage.with_traceback(None)
            if self._damage is None:
                return False
        try:
            self.tail = self._chain.refresh().tail
        except ChangeLogError as error:
            # To see that a tail is damaged takes a second, which many who look would not have.
            self._damage, self._again_at = error, self._clock() + _DAMAGED_FOR_S
            self._sequence = sequence
            raise
        self._sequence, self._damage = sequence, None
        return True

    def find(self, after_scn: int, step_bytes: int) -> Spot | None:
        """Return the spot of the first block that holds anything above an SCN.

        Looks at headers of no more than about ``step_bytes``, and returns None when that was not enough: ask again.

        Raises:
            ScnNotFound: the SCN lies below what was kept or beyond the tail.
            CorruptSegment: a header on the way is damaged.
        """
        self._check(after_scn)
        if not self._chain.links:
            return Spot(NO_SEGMENT, 0, after_scn)
        link = self._chain.links[self._chain.first_link(after_scn)]
        segment = self._chain.live_segment(link.name, after_scn)
        known = segment.known_end
        index = segment.known(link.length, known + step_bytes, self.tail.complete_scn)
        if index.progress.last_scn <= after_scn:
            if segment.damage:
                raise segment.damage
            if known < index.end < link.length:
                return None
        for offset, header in walk(segment.view, index.start(after_scn), index.end, link.name):
            if header.last_scn > after_scn:
                return Spot(link.name, offset, after_scn)
        return Spot(link.name, index.end, max(after_scn, index.progress.covered_scn))

    def behind(self, spot: Spot, scn: int, order: int) -> Spot:
        """Return the spot behind those blocks of a transaction from a spot on that hold nothing above an ordinal.

        Their rows are looked at.

        Raises:
            ScnNotFound: what follows was dropped.
            CorruptSegment: one of them is damaged.
        """
        while found := self.blocks(spot, 1):
            (stored,) = found
            header = stored.header
            if not (header.transactions and header.first_scn == header.last_scn == scn):
                break
            block = stored.segment.decode(stored.offset, header.length, None)
            orders = [int(body.batch.column("_ord")[-1].as_py()) for body in block.bodies]
            if max([*orders, *(event.ord for event in block.system)], default=-1) > order:
                break
            covered = max(spot.covered_scn, header.covered_scn)
            spot = Spot(stored.segment.name, stored.offset + header.length, covered)
        return spot

    def after(self, spot: Spot, most_bytes: int, small_bytes: int = 0) -> Stretch | None:
        """Return what follows a spot, in one segment; None when nothing does yet.

        It is no longer than ``most_bytes`` and what lies between two places of the index, unless one block is. Where
        that is much and the first block has no more than ``small_bytes``, it ends at the next place of the index.

        Raises:
            ScnNotFound: what follows was dropped.
            CorruptSegment: a header is damaged, and everything before it was given out.
        """
        found = self._following(spot, most_bytes)
        if found is None:
            return None
        segment, index, start = found
        boundary, covered = index.boundary(start, start + most_bytes)
        is_more = small_bytes > 0 and boundary - start > STRIDE_BYTES
        if is_more and _length(segment, start) <= small_bytes:
            boundary, covered = index.boundary(start, start + 1)
        return Stretch(segment.view[start:boundary], Spot(segment.name, boundary, covered))

    def blocks(self, spot: Spot, most_bytes: int) -> list[Stored]:
        """Return the blocks that follow a spot, in one segment; none when nothing follows yet.

        Together they are no longer than ``most_bytes``, unless the first alone is.

        Raises:
            ScnNotFound: as `after`.
            CorruptSegment: as `after`.
        """
        found = self._following(spot, most_bytes)
        if found is None:
            return []
        segment, index, start = found
        blocks: list[Stored] = []
        for offset, header in walk(segment.view, start, index.end, segment.name):
            if blocks and offset + header.length > start + most_bytes:
                break
            blocks.append(Stored(segment, offset, header))
        return blocks

    def since(self, commit_us: int) -> int:
        """Return the SCN before the first transaction that committed at or after a time, microseconds since 1970 UTC.

        The tail's when there is none. Commit times are taken to rise, as far as a block's last ones tell.

        Raises:
            ScnNotFound: such transactions were dropped.
            CorruptSegment: a header or index on the way is damaged.
        """
        links = self._chain.links
        if not links:
            return self.tail.covered_scn
        first = links[0].header
        if first.base_scn and first.commit_us >= commit_us:
            raise self._not_found(max(first.base_scn - 1, 0))
        begin = max(
            (i for i, link in enumerate(links) if link.header.commit_us < commit_us), default=0
        )
        for at in self._every(links[begin:]):
            if at.header.complete_scn and at.header.last_commit_us >= commit_us:
                entries = _index_of(at)
                place = int(np.argmax(entries["commit_us"] >= commit_us))
                return int(entries["scn"][place]) - 1
        return self.tail.covered_scn

    def first_commit_us(self, link: Link) -> int:
        """Return the commit time of the first transaction in a segment, 0 when it holds none.

        Raises:
            ScnNotFound: it was dropped.
            CorruptSegment: a header or index before that transaction is damaged.
        """
        for stored in self._every([link]):
            if stored.header.transactions:
                return int(_index_of(stored)["commit_us"][0])
        return 0

    def _every(self, links: list[Link]) -> Iterator[Stored]:
        """Yield the blocks of whole transactions in some segments."""
        for link in links:
            segment = self._chain.live_segment(link.name, link.header.base_scn)
            for offset, header in walk(segment.view, SEGMENT_HEADER_BYTES, link.length, link.name):
                if header.transactions and header.first_scn > self.tail.complete_scn:
                    return
                yield Stored(segment, offset, header)

    def _following(self, spot: Spot, most_bytes: int) -> tuple[MappedSegment, ScnIndex, int] | None:
        """Return a segment, its index, and the offset before that index's end at which the next block begins."""
        links = self._chain.links
        place = self._place(spot)
        start = spot.offset
        for link in links[place:]:
            segment = self._chain.live_segment(link.name, spot.covered_scn)
            start = max(start, SEGMENT_HEADER_BYTES)
            index = segment.known(link.length, start + most_bytes, self.tail.complete_scn)
            if start < index.end:
                return segment, index, start
            if segment.damage:
                raise segment.damage
            if index.end < link.length:
                return None
            start = 0
        return None

    def _place(self, spot: Spot) -> int:
        """Return the place of the spot's segment in the chain.

        Raises:
            ScnNotFound: it was dropped.
        """
        links = self._chain.links
        if spot.segment == NO_SEGMENT:
            # What an empty log was left for may be gone again, or it began further on.
            if links and (
                links[0].header.previous != NO_SEGMENT
                or links[0].header.base_scn > spot.covered_scn
            ):
                raise self._not_found(spot.covered_scn)
            return 0
        place = bisect_left(links, spot.segment.number, key=lambda link: link.name.number)
        if place == len(links) or links[place].name != spot.segment:
            raise self._not_found(spot.covered_scn)
        return place

    def _check(self, scn: int) -> None:
        if not self.tail.oldest_scn <= scn <= self.tail.covered_scn:
            raise self._not_found(scn)

    def _not_found(self, scn: int) -> ScnNotFound:
        return ScnNotFound(scn, self.tail.oldest_scn, self.tail.covered_scn)


def _length(segment: MappedSegment, offset: int) -> int:
    """Return how long a block is that the index knows."""
    try:
        return read_header(segment.view, offset).length
    except ProtocolError as error:
        # Damaged since the index was made.
        raise corrupt(segment.name, offset, error.message) from error


def _index_of(stored: Stored) -> npt.NDArray[np.void]:
    """Return the transaction index of a block."""
    try:
        return join_indexes([read_index(stored.segment.view, stored.header, stored.offset)])
    except ProtocolError as error:
        raise corrupt(stored.segment.name, stored.offset, error.message) from error
