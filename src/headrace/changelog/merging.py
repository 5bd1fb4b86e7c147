"""Which neighbouring blocks are read as one: a pure decision.

Small blocks leave capture soon, and readers pay a fixed price for each batch that they work on. So reading, and
only reading, puts small neighbours together; the log stays as it was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headrace.changelog.mapped import MappedSegment
from headrace.wire.block import BlockHeader

__all__ = ["MERGED_BYTES", "MERGED_ROWS", "Stored", "merged"]

MERGED_ROWS = 16_384
"""Most rows of blocks that are read as one; a larger block stays alone."""
MERGED_BYTES = 2 * 2**20
"""Most bytes of blocks that are read as one: what is put together is copied, and a copy should fit a cache."""


class Stored(NamedTuple):
    """Where a block lies: the file, and the offset in it of the block that the header begins."""

    segment: MappedSegment
    offset: int
    header: BlockHeader


def merged(blocks: Iterable[Stored]) -> Iterator[list[Stored]]:
    """Yield the blocks in their order, those that are read as one together.

    A block that leaves a transaction open stays alone: whoever cuts between blocks may not cut behind it.
    """
    held: list[Stored] = []
    rows = size = 0
    for block in blocks:
        header = block.header
        rows, size = rows + header.rows, size + header.length
        if held and (rows > MERGED_ROWS or size > MERGED_BYTES or not header.ends_complete):
            yield held
            held, rows, size = [], header.rows, header.length
        held.append(block)
        if not header.ends_complete:
            yield held
            held, rows, size = [], 0, 0
    if held:
        yield held
