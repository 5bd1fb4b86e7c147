"""The segment that grows: one file, written at its end, never mapped for writing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from headrace.changelog.segment import SEGMENT_HEADER_BYTES, SegmentHeader
from headrace.durable import sync_folder
from headrace.wire.block import Readable

__all__ = ["AHEAD_BYTES", "ActiveSegment", "Sync", "Write"]

Sync = Callable[[int], None]
"""Makes a file's bytes durable, given its descriptor; ``os.fdatasync``."""
Write = Callable[[int, memoryview, int], int]
"""Writes bytes at an offset and returns how many it took; ``os.pwrite``."""

_JOINED_BYTES = 64 * 1024

AHEAD_BYTES = 1 << 20
"""How far zeros are written ahead of small blocks. Bytes that a file holds already need no entry in the file system's
journal when they are written again, so a sync of them is one write of the disk and not three."""


class ActiveSegment:
    """A file of its full size from the beginning, so that readers map it once and a sync has no size to record.

    Attributes:
        header: its first bytes.
        length: bytes written, durable or not.
        size: bytes that the file has room for; who has mapped it sees no more.
    """

    def __init__(self, folder: Path, header: SegmentHeader, size: int, write: Write) -> None:
        """Create the file; under its name it is durable and has its header from the first moment.

        Raises:
            OSError: the file system refused.
        """
        self.header = header
        self.length = SEGMENT_HEADER_BYTES
        self.size = max(size, SEGMENT_HEADER_BYTES)
        self._filled = 0
        self._write = write
        path = folder / str(header.name)
        draft = path.with_suffix(".tmp")
        self._descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            self._write_at(header.encode(), 0)
            os.ftruncate(self._descriptor, self.size)
            self._fill_ahead()
            os.fsync(self._descriptor)
            draft.rename(path)
            sync_folder(folder)
        except OSError:
            os.close(self._descriptor)
            draft.unlink(missing_ok=True)
            # Nor under its name: a start would take it for the log's end, and what is appended now lies elsewhere.
            path.unlink(missing_ok=True)
            raise

    def append(self, parts: Sequence[Readable]) -> None:
        """Write bytes at the end. After an `OSError` the end is where it was.

        Raises:
            OSError: the file system refused.
        """
        end = self.length
        size = sum(len(part) for part in parts)
        # One call for a small block; to join a large one would copy it.
        for part in [b"".join(parts)] if size <= _JOINED_BYTES else parts:
            self._write_at(part, end)
            end += len(part)
        self.length = end
        if end > self._filled:
            self._filled = end
            # Who writes much at once does not wait for single syncs, and would write everything twice.
            if size <= _JOINED_BYTES:
                self._fill_ahead()

    def sync(self, sync: Sync) -> None:
        """Make everything written durable."""
        sync(self._descriptor)

    def close(self) -> None:
        """Cut the file to what was written and release it; no reader looks behind that."""
        try:
            os.ftruncate(self._descriptor, self.length)
        finally:
            os.close(self._descriptor)

    def _fill_ahead(self) -> None:
        """Write zeros behind the end; where there is no room for them, there is none for them until the end."""
        first, self._filled = self.length, min(self.length + AHEAD_BYTES, self.size)
        with contextlib.suppress(OSError):
            self._write_at(bytes(max(0, self._filled - first)), first)

    def _write_at(self, data: Readable, offset: int) -> None:
        rest = memoryview(data)
        while rest:
            count = self._write(self._descriptor, rest, offset)
            rest = rest[count:]
            offset += count
