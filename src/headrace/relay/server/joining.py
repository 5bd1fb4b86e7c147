"""Small neighbouring blocks made one for many readers, once for all of them.

To take a block costs its reader more than the bytes of a small one: some fifty microseconds, whatever it holds. Under
steady small transactions every sync of the change log makes a block of its own, and forty readers together would spend
more time on the blocks than there is. What one reader gets, or what is large, goes out as it is stored.

Those that are behind get joined blocks too, else they would have more work than the others and never catch up. They
are cut at places that do not depend on where a reader stands, so that few are joined for many.
"""

from __future__ import annotations

from collections import OrderedDict

from headrace.changelog import Spot, Stretch
from headrace.changelog.index import STRIDE_BYTES
from headrace.errors import ProtocolError
from headrace.wire.block import BlockFrame, decode_merged, encode_block, read_header
from headrace.wire.body import Readable

__all__ = ["Joining"]

_MANY = 8
"""Readers from which on it pays."""
_SMALL_BYTES = 16 * 1024
"""A block is small up to here."""
_TOGETHER_BYTES = 2 * STRIDE_BYTES
"""Small blocks between two places of the index are no more than this."""
_KEPT = 64


class Joining:
    """The last stretches of one log that were made one. Used from the event loop."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, object, int, int], Readable] = OrderedDict()

    def small_bytes(self, readers: int) -> int:
        """Return up to which size blocks had better be joined for so many readers, 0 for none.

        Those are to be taken only up to the next place of the log's index.
        """
        return _SMALL_BYTES if readers >= _MANY else 0

    def joined(self, life: int, start: Spot, stretch: Stretch, readers: int) -> Readable:
        """Return the bytes of a stretch, as one block where that pays.

        Args:
            life: of the log, as `StretchReader.life`.
            start: where the stretch begins.
            stretch: whole blocks.
            readers: how many there are of the log.
        """
        data = stretch.data
        if readers < _MANY or len(data) > _TOGETHER_BYTES:
            return data
        key = (life, start.segment, start.offset, len(data))
        if (found := self._kept.get(key)) is None:
            found = self._kept[key] = _joined(data)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return found


def _joined(data: memoryview) -> Readable:
    try:
        blocks = _blocks(data)
        if len(blocks) == 1 or not all(block.header.ends_complete for block in blocks[:-1]):
            return data
        return b"".join(encode_block(block) for block in decode_merged(blocks))
    except ProtocolError:
        # Damage is found by whoever takes the block, and is asked for again there: so it goes out as it is.
        return data


def _blocks(data: memoryview) -> list[BlockFrame]:
    found = []
    at = 0
    while at < len(data):
        header = read_header(data, at)
        found.append(BlockFrame(header, data[at : at + header.length]))
        at += header.length
    return found
