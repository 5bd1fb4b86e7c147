"""What one consumer gets next, as bytes: the way of a stream through its log, without its connection.

`Stored` gives blocks out as they lie there, as views of the mapped files, small ones for many readers joined.
`Rendered` makes something else of each: what a filter leaves of it, or lines.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple, Protocol

from headrace.changelog import Spot, Stretch
from headrace.changelog.merging import Stored as StoredBlock
from headrace.errors import BlockTooLarge, HeadraceError, RelayUnavailable
from headrace.relay.server.feed import Feed
from headrace.relay.server.request import StreamRequest
from headrace.wire.body import Readable

__all__ = ["PIECE_BYTES", "ROUND_BYTES", "Ended", "Piece", "Render", "Rendered", "Stored", "Supply"]

PIECE_BYTES = 4 * 2**20
"""Bytes that are handed to a connection at once, and after which others have their turn."""
ROUND_BYTES = 2**20
"""Of so much something is made at once, where blocks do not go as they are."""

Ended = Literal["", "size", "upto"]


class Piece(NamedTuple):
    """What is made of one block.

    Attributes:
        data: bytes for the consumer.
        bare: whether it says no more than how far the source is covered.
    """

    data: Readable
    bare: bool


Render = Callable[[StoredBlock], Awaitable[Piece]]
"""Makes of a stored block what a consumer gets."""


class Supply(Protocol):
    """Where the bytes of a stream come from."""

    @property
    def ended(self) -> Ended:
        """Why nothing more comes; empty while something may."""
        ...

    @property
    def covered_scn(self) -> int:
        """Everything up to here has been given out."""
        ...

    @property
    def at_end(self) -> bool:
        """Whether everything was given out that the log held at the reader's last look."""
        ...

    async def next(self) -> list[Readable]:
        """Return what follows, whole blocks of about `PIECE_BYTES` or `ROUND_BYTES`; nothing when nothing does yet.

        Raises:
            BlockTooLarge: the first block is larger than all that was asked for.
            RelayUnavailable: another log has taken the place of the one in which this way began.
            ScnNotFound: what follows was dropped.
            CorruptSegment: what follows is damaged.
        """
        ...


class _Way:
    """The part of a supply that knows how far it is."""

    def __init__(self, feed: Feed, spot: Spot, request: StreamRequest) -> None:
        self.ended: Ended = ""
        self._feed = feed
        self._life = feed.reader.life
        self._spot = spot
        self._upto = request.upto
        self._left = None if request.push else request.max_bytes
        self._begun = False
        if request.upto is not None and spot.covered_scn >= request.upto:
            self.ended = "upto"

    @property
    def covered_scn(self) -> int:
        return self._spot.covered_scn

    @property
    def at_end(self) -> bool:
        return self._spot.covered_scn >= self._feed.reader.tail.covered_scn

    def _check_life(self) -> None:
        """Refuse to go on in another log: where a block began in the one before says nothing of it."""
        if self._feed.reader.life != self._life:
            raise RelayUnavailable(
                f"The change log of {self._feed.name} is another one than when this stream began.",
                next_step="none: it is asked for again, by its SCN.",
            )

    def _nothing(self) -> list[Readable]:
        """Take note that the end of the log is reached."""
        covered = self._feed.reader.tail.covered_scn
        self._spot = self._spot._replace(covered_scn=max(self._spot.covered_scn, covered))
        if self._upto is not None and self._spot.covered_scn >= self._upto:
            self.ended = "upto"
        return []

    def _upto_blocks(self, blocks: list[StoredBlock]) -> list[StoredBlock]:
        """Return the blocks up to the one with which everything up to ``upto`` is said."""
        upto = self._upto
        if upto is None:
            return blocks
        for number, (_, _, header) in enumerate(blocks):
            if header.transactions and header.first_scn > upto:
                self.ended = "upto"
                return blocks[:number]
            if max(header.complete_scn, header.covered_scn) >= upto:
                self.ended = "upto"
                return blocks[: number + 1]
        return blocks

    def _gone(self, last: StoredBlock) -> None:
        """Go on behind a block."""
        covered = max(self._spot.covered_scn, last.header.covered_scn, last.header.complete_scn)
        self._spot = Spot(last.segment.name, last.offset + last.header.length, covered)

    def _fits(self, length: int) -> bool:
        """Take so many bytes from what may still be sent; say whether there were so many."""
        if self._left is not None and length > self._left:
            if not self._begun:
                raise BlockTooLarge(length)
            self.ended = "size"
            return False
        self._begun = True
        self._left = None if self._left is None else self._left - length
        return True


class Stored(_Way):
    """Blocks as they are stored."""

    async def next(self) -> list[Readable]:
        """Return what follows; see `Supply`."""
        if self._left == 0:
            self.ended = self.ended or "size"
        if self.ended:
            return []
        self._check_life()
        most = PIECE_BYTES if self._left is None else min(PIECE_BYTES, self._left)
        joining, readers = self._feed.joining, self._feed.streams
        stretch = self._feed.after(self._spot, most, joining.small_bytes(readers))
        if stretch is None:
            return self._nothing()
        if self._has_room_for(stretch):
            self._fits(len(stretch.data))
            data = joining.joined(self._life, self._spot, stretch, readers)
            self._spot = stretch.end
            return _cut(data)
        return self._one_by_one(most)

    def _has_room_for(self, stretch: Stretch) -> bool:
        room = self._left is None or len(stretch.data) <= self._left
        return room and (self._upto is None or stretch.end.covered_scn < self._upto)

    def _one_by_one(self, most: int) -> list[Readable]:
        """Return the blocks before the place where it ends, which lies within the next ones."""
        start, end = self._spot.offset, 0
        blocks = self._upto_blocks(self._feed.reader.blocks(self._spot, most))
        for number, block in enumerate(blocks):
            if not self._fits(block.header.length):
                break
            start = block.offset if not number else start
            end = block.offset + block.header.length
            self._gone(block)
        return _cut(blocks[0].segment.view[start:end]) if end else []


class Rendered(_Way):
    """Something made of each block."""

    def __init__(self, feed: Feed, spot: Spot, request: StreamRequest, render: Render) -> None:
        super().__init__(feed, spot, request)
        self._render = render

    async def next(self) -> list[Readable]:
        """Return what follows; see `Supply`. Of neighbours that are bare the last stands for all."""
        if self.ended:
            return []
        self._check_life()
        blocks = self._feed.reader.blocks(self._spot, ROUND_BYTES)
        if not blocks:
            return self._nothing()
        out: list[Piece] = []
        for block in self._upto_blocks(blocks):
            try:
                piece = await self._render(block)
            except HeadraceError:
                if not out:
                    raise
                # What lies before it is told first; asked again, it is the first itself.
                self.ended = ""
                break
            if out and out[-1].bare and piece.bare:
                out[-1] = piece
            elif self._fits(len(piece.data)):
                out.append(piece)
            else:
                break
            self._gone(block)
        return [piece.data for piece in out if len(piece.data)]


def _cut(whole: Readable) -> list[Readable]:
    """Return the bytes in pieces, as they are where one is enough; a block may be large.

    None of them is empty, for a chunk of no bytes would end the answer.
    """
    if 0 < len(whole) <= PIECE_BYTES:
        return [whole]
    data = memoryview(whole)
    return [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]
