"""A block whose every byte was checked, and the table versions that it speaks of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headrace.model.block import SYSTEM_SCHEMA_ID, SystemEvent, system_events
from headrace.wire.block import BlockHeader, Readable, read_directory, read_header
from headrace.wire.body import checked_stream, malformed, read_batch

__all__ = ["CheckedBlock", "checked"]


class CheckedBlock(NamedTuple):
    """One block as it is stored.

    Attributes:
        header: of it.
        data: all of its bytes.
        schema_ids: table versions of its rows, and those that its system events name.
    """

    header: BlockHeader
    data: memoryview
    schema_ids: frozenset[int]


def checked(data: Readable) -> CheckedBlock:
    """Return the block that the bytes hold; rows are not decoded.

    Raises:
        ProtocolError: a checksum fails, or the bytes do not follow the format.
    """
    view = memoryview(data)
    header = read_header(view)
    if len(view) != header.length:
        raise malformed(f"{len(view)} bytes given for a block of {header.length}")
    ids: set[int] = set()
    for entry in read_directory(view, header):
        stream = checked_stream(view, entry)
        if entry.schema_id == SYSTEM_SCHEMA_ID:
            for event in system_events(read_batch(stream, entry)):
                ids.update(_named(event))
        else:
            ids.add(entry.schema_id)
    return CheckedBlock(header, view, frozenset(ids))


def _named(event: SystemEvent) -> Iterator[int]:
    """Yield the versions that an event names: the table's from there on, and the one before."""
    for said in (event.payload, event.payload.get("was")):
        if isinstance(said, dict) and "schema_id" in said:
            yield int(said["schema_id"])
