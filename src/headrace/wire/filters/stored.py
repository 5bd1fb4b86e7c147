"""A filter that names tables and no more, over blocks as they are stored.

The directory of a block says which tables it holds: a block of which all is wanted stays as it is, and of any other
the bodies that are wanted go on byte by byte. Rows are looked at only where the index has to be counted anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.model.block import SYSTEM_SCHEMA_ID, Block, Body
from headrace.wire.block import (
    BlockHeader,
    BodyEntry,
    Readable,
    decode_block,
    encode_parts,
    read_directory,
)
from headrace.wire.body import checked_stream, read_body
from headrace.wire.filters.apply import BoundFilter, left_index

__all__ = ["Left", "is_whole", "left_of"]


class Left(NamedTuple):
    """What a filter leaves of a block.

    Attributes:
        data: a block.
        bare: whether it says no more than how far the source is covered.
    """

    data: Readable
    bare: bool


def is_whole(filter_: BoundFilter, data: memoryview, header: BlockHeader) -> bool:
    """Return whether all of a block is wanted, as far as its directory alone can tell.

    Args:
        filter_: one of `BoundFilter.tables_only`.
        data: the block.
        header: its header.

    Raises:
        ProtocolError: the directory is damaged; bodies are not looked at.
    """
    return all(
        entry.schema_id != SYSTEM_SCHEMA_ID and filter_.lets_through(entry.schema_id)
        for entry in read_directory(data, header)
    )


def left_of(filter_: BoundFilter, data: memoryview, header: BlockHeader) -> Left:
    """Return what is left of a block, as `BoundFilter.apply` would have it; arguments as of `is_whole`.

    Raises:
        ProtocolError: the block is damaged, as far as it was looked at.
    """
    wanted: list[BodyEntry] = []
    others: list[BodyEntry] = []
    for entry in read_directory(data, header):
        if entry.schema_id != SYSTEM_SCHEMA_ID:
            (wanted if filter_.lets_through(entry.schema_id) else others).append(entry)
    ids = [entry.schema_id for entry in wanted]
    block = decode_block(data, schema_ids=ids)
    events = filter_.events(block)
    if not others and len(events) == len(block.system):
        return Left(data, not len(block.index))
    index = left_index(block, block.bodies, events, _all_rows(block, data, others))
    left = Block(index, block.bodies, events, block.covered_scn)
    stored = {
        entry.schema_id: (entry, data[entry.offset : entry.offset + entry.length])
        for entry in wanted
        # Several bodies of one version have become one, which nobody has written yet.
        if ids.count(entry.schema_id) == 1
    }
    return Left(b"".join(encode_parts(left, stored)), not len(index))


def _all_rows(block: Block, data: memoryview, others: Sequence[BodyEntry]) -> Iterator[Body]:
    """Yield the rows of a block: those that were decoded, then the others."""
    yield from block.bodies
    for entry in others:
        yield read_body(checked_stream(data, entry), entry)
