"""A segment file in memory, for reading. The kernel shares its pages between all processes."""

from __future__ import annotations

import itertools
import mmap
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from headrace.changelog.index import ScnIndex, walk
from headrace.changelog.segment import SegmentHeader, SegmentName, corrupt, read_segment_header
from headrace.errors import CorruptSegment, ProtocolError
from headrace.model.block import Block
from headrace.wire.block import BlockHeader, decode_block, read_header

__all__ = ["MappedSegment"]

_mappings = itertools.count()


class MappedSegment:
    """Blocks of one file. What was decoded keeps the mapping alive, even after the file is gone.

    Attributes:
        mapping: number of this one, no other's in this process: names of files come again.
        identity: device and inode of the file, which nobody else gets while it is mapped.
        damage: what stopped `known`, None when nothing did.
    """

    def __init__(self, folder: Path, name: SegmentName) -> None:
        """Map the file.

        Raises:
            FileNotFoundError: when it does not exist (any more).
            CorruptSegment: when its header is damaged.
        """
        self.name = name
        self.mapping = next(_mappings)
        descriptor = os.open(folder / str(name), os.O_RDONLY)
        try:
            status = os.fstat(descriptor)
            self.identity = status.st_dev, status.st_ino
            # The system says how long it is as it maps it: its writer may cut it to what was written at any moment.
            self._map = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise corrupt(name, 0, "the file is empty") from error
        finally:
            os.close(descriptor)
        self.view = memoryview(self._map)
        self.size = len(self.view)
        self.header: SegmentHeader = read_segment_header(self.view, name)
        self._index = ScnIndex(self.header)
        self.damage: CorruptSegment | None = None

    @property
    def known_end(self) -> int:
        """Offset behind the last block whose header was looked at."""
        return self._index.end

    def known(self, end: int, enough: int, whole_scn: int) -> ScnIndex:
        """Return the index of the blocks before byte ``end``, grown as `ScnIndex.extend` says, up to the first damage.

        Not for segments of which `headers` is asked too: that looks beyond ``whole_scn``.
        """
        self._check_size(end)
        try:
            self._index.extend(self.view, end, enough=enough, whole_scn=whole_scn)
        except CorruptSegment as error:
            self.damage = error
        return self._index

    def headers(self, after_scn: int, end: int) -> Iterator[tuple[int, BlockHeader]]:
        """Yield offset and header of the blocks before byte ``end``.

        Blocks that end at or below ``after_scn`` may be left out, and most of them are.

        Raises:
            CorruptSegment: when a header is damaged.
        """
        self._check_size(end)
        if self._index.end > end:
            self._index = ScnIndex(self.header)
        self._index.extend(self.view, end)
        return walk(self.view, self._index.start(after_scn), end, self.name)

    def header_at(self, offset: int, length: int) -> BlockHeader:
        """Return the header of the block of ``length`` bytes at ``offset``.

        Raises:
            CorruptSegment: when no intact header of such a block stands there.
        """
        try:
            header = read_header(self.bytes_of(offset, length))
        except ProtocolError as error:
            raise corrupt(self.name, offset, error.message) from error
        if header.length != length:
            raise corrupt(self.name, offset, f"no block of {length} bytes begins here")
        return header

    def bytes_of(self, offset: int, length: int) -> memoryview:
        """Return the bytes of a block, unchecked.

        Raises:
            CorruptSegment: when the file ends before theirs do.
        """
        self._check_size(offset + length)
        return self.view[offset : offset + length]

    def decode(self, offset: int, length: int, schema_ids: Collection[int] | None) -> Block:
        """Return one block after checking its bytes.

        Raises:
            CorruptSegment: when they are damaged.
        """
        data = self.bytes_of(offset, length)
        try:
            return decode_block(data, schema_ids=schema_ids)
        except ProtocolError as error:
            raise corrupt(self.name, offset, error.message) from error

    def _check_size(self, end: int) -> None:
        """Refuse to touch pages that do not exist: the kernel would kill the process."""
        if end > self.size:
            raise corrupt(self.name, self.size, f"the file ends before byte {end}")
