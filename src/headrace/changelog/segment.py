"""A segment file: a fixed header, then blocks one after the other.

Each header names the segment before it and how many of its bytes count. So the log is a chain that is read
backward from its newest segment, and whatever a torn write or a stale writer left behind a counted
length, or in a file outside the chain, is invisible without being erased under a reader's eyes.
The layout is specified in ``docs/block_format.md``.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from headrace.errors import CorruptSegment
from headrace.wire.block import Readable

__all__ = [
    "NO_SEGMENT",
    "SEGMENT_HEADER_BYTES",
    "SegmentHeader",
    "SegmentName",
    "corrupt",
    "list_segments",
    "read_segment_header",
]

_MAGIC = b"HRSG"
_VERSION = 1
_HEADER = struct.Struct("<4sHHQQQQQqqqqq36sI")
SEGMENT_HEADER_BYTES = _HEADER.size
_CRC_AT = SEGMENT_HEADER_BYTES - 4
_NAME = re.compile(r"(\d{10})\.(\d{10})\.seg")


class SegmentName(NamedTuple):
    """Identity of a segment; newer segments compare greater.

    Attributes:
        generation: of the writer that made it.
        number: rises by one from segment to segment, across generations too.
    """

    generation: int
    number: int

    def __str__(self) -> str:
        return f"{self.number:010d}.{self.generation:010d}.seg"

    @classmethod
    def parse(cls, text: str) -> SegmentName | None:
        """Read a file name; None when it is not a segment's."""
        match = _NAME.fullmatch(text)
        return cls(int(match[2]), int(match[1])) if match else None


NO_SEGMENT = SegmentName(0, 0)
"""Stands before the first segment."""


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The first 128 bytes of a segment file; never changes after creation.

    Attributes:
        name: the segment's own identity.
        previous: the segment before it, `NO_SEGMENT` for the first.
        previous_length: bytes of the previous segment that belong to the log.
        base_scn: greatest SCN in the blocks before this segment, an open transaction's included.
        complete_scn: greatest SCN of a whole transaction before this segment.
        covered_scn: SCN up to which the log was covered before this segment.
        commit_us: commit time of ``complete_scn``.
        created_us: when the segment was created, microseconds since 1970 UTC.
    """

    name: SegmentName
    previous: SegmentName = NO_SEGMENT
    previous_length: int = 0
    base_scn: int = 0
    complete_scn: int = 0
    covered_scn: int = 0
    commit_us: int = 0
    created_us: int = 0

    def encode(self) -> bytes:
        """Return the header's bytes."""
        data = _HEADER.pack(
            _MAGIC,
            _VERSION,
            0,
            self.name.number,
            self.name.generation,
            self.previous.number,
            self.previous.generation,
            self.previous_length,
            self.base_scn,
            self.complete_scn,
            self.covered_scn,
            self.commit_us,
            self.created_us,
            b"",
            0,
        )[:_CRC_AT]
        return data + struct.pack("<I", zlib.crc32(data))


def read_segment_header(data: Readable, name: SegmentName) -> SegmentHeader:
    """Return the header of the segment whose file is called ``name``.

    Raises:
        CorruptSegment: when the bytes are not that segment's header.
    """
    view = memoryview(data)[:SEGMENT_HEADER_BYTES]
    if len(view) < SEGMENT_HEADER_BYTES:
        raise corrupt(name, 0, "the file is shorter than its header")
    magic, version, flags, number, generation, *rest = _HEADER.unpack(view)
    before, before_generation, length, *positions, reserved, crc = rest
    if magic != _MAGIC or zlib.crc32(view[:_CRC_AT]) != crc:
        raise corrupt(name, 0, "the segment header fails its checksum")
    if version != _VERSION or flags or any(reserved):
        raise corrupt(
            name, 0, f"the segment has version {version}, and this program reads {_VERSION}"
        )
    if SegmentName(generation, number) != name:
        raise corrupt(name, 0, "the segment header belongs to another file")
    return SegmentHeader(name, SegmentName(before_generation, before), length, *positions)


def list_segments(folder: Path) -> list[SegmentName]:
    """Return the segments in a folder, oldest first."""
    names = (SegmentName.parse(path.name) for path in folder.iterdir())
    return sorted(name for name in names if name)


def corrupt(name: SegmentName, offset: int, what: str) -> CorruptSegment:
    """Return the error for damaged bytes at ``offset`` of a segment."""
    return CorruptSegment(
        f"Segment {name} of the change log is damaged at byte {offset}: {what}.",
        next_step="restore the change log folder from a backup, or delete it and dump all tables again.",
    )
