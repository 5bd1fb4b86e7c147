"""Finding blocks in a segment by SCN without reading all of it.

The index holds one entry per stretch of `STRIDE_BYTES` or more, so it is bounded by the size of the log and not by the
number of blocks in it; the rest of the way is a walk over the headers of one stretch.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator

from headrace.changelog.progress import Progress
from headrace.changelog.segment import SEGMENT_HEADER_BYTES, SegmentHeader, SegmentName, corrupt
from headrace.errors import ProtocolError
from headrace.wire.block import BlockHeader, Readable, read_header

__all__ = ["STRIDE_BYTES", "ScnIndex", "walk"]

STRIDE_BYTES = 64 * 1024


class ScnIndex:
    """Where to begin reading a segment. Grows as the segment does.

    Attributes:
        end: offset behind the last block that was taken in.
        progress: positions there.
    """

    def __init__(self, header: SegmentHeader) -> None:
        self._name = header.name
        self.progress = Progress.at(header)
        self.end = SEGMENT_HEADER_BYTES
        self._before = array("q", [self.progress.last_scn])
        self._covered = array("q", [self.progress.covered_scn])
        self._offsets = array("Q", [SEGMENT_HEADER_BYTES])
        self._grown = self.progress.last_scn, SEGMENT_HEADER_BYTES

    def __len__(self) -> int:
        return len(self._offsets)

    def extend(
        self,
        data: Readable,
        end: int,
        *,
        enough: int | None = None,
        whole_scn: int | None = None,
    ) -> None:
        """Take in the blocks up to byte ``end``.

        Args:
            data: the segment.
            end: where a block ends.
            enough: take in no more blocks once they reach this byte.
            whole_scn: take in no block of a transaction above this SCN, nor any behind it.

        Raises:
            CorruptSegment: when a block's header is damaged; what stands before it is taken in.
        """
        if end > self.end:
            self._grown = self.progress.last_scn, self.end
        if enough is not None and enough <= self.end:
            return
        for offset, block in walk(data, self.end, end, self._name):
            if whole_scn is not None and block.transactions and block.first_scn > whole_scn:
                return
            if offset - self._offsets[-1] >= STRIDE_BYTES:
                self._before.append(self.progress.last_scn)
                self._covered.append(self.progress.covered_scn)
                self._offsets.append(offset)
            self.progress = self.progress.then(block)
            self.end = offset + block.length
            if enough is not None and enough <= self.end:
                return

    def start(self, after_scn: int) -> int:
        """Return an offset such that every block before it ends at or below ``after_scn``."""
        offset = self._offsets[max(bisect_right(self._before, after_scn) - 1, 0)]
        last_scn, grown_from = self._grown
        # Who follows the log's end has seen all but what came last.
        return max(offset, grown_from) if after_scn >= last_scn else offset

    def boundary(self, start: int, limit: int) -> tuple[int, int]:
        """Return an offset above ``start`` at which blocks end, and the SCN that is covered there.

        It is the last such offset up to ``limit`` that is known without a walk, else the next one that is.
        ``start`` lies below ``end``.
        """
        if self.end <= limit:
            return self.end, self.progress.covered_scn
        at = bisect_right(self._offsets, limit) - 1
        if self._offsets[at] <= start:
            at = bisect_right(self._offsets, start)
        if at < len(self._offsets):
            return self._offsets[at], self._covered[at]
        return self.end, self.progress.covered_scn


def walk(
    data: Readable, start: int, end: int, name: SegmentName
) -> Iterator[tuple[int, BlockHeader]]:
    """Yield offset and header of each block between two offsets at which blocks begin.

    Raises:
        CorruptSegment: when a header is damaged or the last block does not end at ``end``.
    """
    while start < end:
        try:
            header = read_header(data, start)
        except ProtocolError as error:
            raise corrupt(name, start, error.message) from error
        if header.length > end - start:
            raise corrupt(name, start, f"a block of {header.length} bytes passes byte {end}")
        yield start, header
        start += header.length
