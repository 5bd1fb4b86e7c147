"""Readers of a change log: any number, in any process, none of which the writer knows.

In: a folder. Out: blocks of whole transactions, straight from mapped segment files; small neighbours come as one
block (`headrace.changelog.merging`). A reader sees new blocks and segments as soon as the writer has published them,
without opening anything again. Used from one thread.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.changelog.merging import Stored, merged
from headrace.changelog.opened import OpenedChain
from headrace.changelog.refs import BlockRef, block_ref
from headrace.changelog.segment import SegmentName, corrupt, list_segments
from headrace.changelog.tail import Tail
from headrace.errors import CorruptSegment, ProtocolError, ScnNotFound
from headrace.model.block import Block
from headrace.wire.block import BlockFrame, decode_merged, join_indexes, read_index
from headrace.wire.operations import Operations, read_operations

__all__ = ["ChangeLogReader"]


class ChangeLogReader:
    """Reads the log in a folder, which need not exist yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._chain = OpenedChain(folder)

    def tail(self) -> Tail:
        """Return what the log can serve now; all zero when there is no log."""
        return self._chain.tail()

    def used_bytes(self) -> int:
        """Return what the segments take on disk; 0 when there is no log."""
        if not self._folder.exists():
            return 0
        return sum(_size(self._folder / str(name)) for name in list_segments(self._folder))

    def wait(self, scn: int, timeout_s: float) -> bool:
        """Return True as soon as everything up to ``scn`` is readable, False when it is not in time."""
        deadline = time.monotonic() + timeout_s
        while self.tail().covered_scn < scn:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._chain.wait(left)
        return True

    def blocks(
        self,
        after_scn: int,
        upto_scn: int | None = None,
        schema_ids: Collection[int] | None = None,
    ) -> Iterator[Block]:
        """Yield the transactions above ``after_scn`` and up to ``upto_scn``, whole and each once.

        Args:
            after_scn: where the caller stands.
            upto_scn: None, or anything beyond the tail, stands for the newest whole transaction of this moment.
            schema_ids: table versions to decode, None for all; index and system events always come.

        A transaction may span several blocks; then all of them come. Small neighbours come as one, so what a caller
        does per block does not depend on how often capture wrote. A block's ``covered_scn`` never passes ``upto_scn``.
        Nothing comes when there is nothing above ``after_scn``.

        Raises:
            ScnNotFound: ``after_scn`` lies below what was kept or beyond the tail.
            CorruptSegment: a block fails its checksum; it is not delivered.
        """
        record = self._chain.refresh()
        _check_position(after_scn, record.tail)
        last = _limit(upto_scn, record.tail.complete_scn)
        covered = _limit(upto_scn, record.tail.covered_scn)
        told = after_scn
        for run in merged(self._headers(after_scn, last)):
            for block in _decoded(run, schema_ids):
                part = block.after(after_scn).upto(covered)
                # A block without transactions is worth a line only when its coverage is news.
                if len(part.index) or part.covered_scn > told:
                    told = max(told, part.covered_scn)
                    yield part

    def refs(self, after_scn: int, upto_scn: int | None = None) -> Iterator[BlockRef]:
        """Return the blocks that hold the transactions `blocks` would yield, without reading their rows.

        The first and the last may hold transactions outside the range: cut with `Block.after` and `Block.upto`.
        Blocks are looked for as they are taken: who wants few of a long range pays for few.

        Raises:
            ScnNotFound: as `blocks`; at once, unless it is for what was dropped in the meantime.
            CorruptSegment: a header or directory fails its checksum; when its block is taken.
        """
        record = self._chain.refresh()
        _check_position(after_scn, record.tail)
        last = _limit(upto_scn, record.tail.complete_scn)
        return (
            block_ref(segment, offset, header)
            for segment, offset, header in self._headers(after_scn, last)
            if header.transactions
        )

    def load(self, ref: BlockRef, schema_ids: Collection[int] | None = None) -> Block:
        """Return the block that a ref names, uncut.

        Raises:
            ScnNotFound: it was dropped in the meantime.
            CorruptSegment: it fails its checksum.
        """
        return next(_decoded([self._stored(ref)], schema_ids))

    def operations(
        self, refs: Iterable[BlockRef], schema_ids: Collection[int]
    ) -> Iterator[tuple[BlockRef, Operations]]:
        """Yield what kind of changes the blocks that refs name hold, uncut; costs a few microseconds each.

        Args:
            refs: of blocks, as `refs` gave them a moment ago.
            schema_ids: table versions to look at.

        Raises:
            ScnNotFound: as `load`.
            CorruptSegment: a block does not read; only its directory is checked.
        """
        last, segment = "", None
        for ref in refs:
            if not any(schema_id in schema_ids for schema_id, _ in ref.tables):
                continue
            if ref.segment != last or segment is None:
                last, segment = ref.segment, self._stored(ref).segment
            data = segment.bytes_of(ref.offset, ref.length)
            try:
                for found in read_operations(data, len(ref.tables), schema_ids):
                    yield ref, found
            except ProtocolError as error:
                raise corrupt(segment.name, ref.offset, error.message) from error

    def read(
        self, refs: Iterable[BlockRef], schema_ids: Collection[int] | None = None
    ) -> Iterator[Block]:
        """Yield the blocks that refs name, uncut and in their order; small neighbours come as one.

        Raises:
            ScnNotFound: as `load`.
            CorruptSegment: a block fails its checksum; it is not delivered.
        """
        for run in merged(self._stored(ref) for ref in refs):
            yield from _decoded(run, schema_ids)

    def index(self, after_scn: int, upto_scn: int | None = None) -> npt.NDArray[np.void]:
        """Return one `TRANSACTION_DTYPE` entry per whole transaction above ``after_scn`` and up to ``upto_scn``.

        None stands for the newest, as in `blocks`; nothing behind ``upto_scn`` is read.

        The pieces of a transaction that spans blocks are one entry, whose ``changes`` is their sum.

        Raises:
            ScnNotFound: as `blocks`.
            CorruptSegment: a header or index fails its checksum.
        """
        record = self._chain.refresh()
        _check_position(after_scn, record.tail)
        last = _limit(upto_scn, record.tail.complete_scn)
        parts: list[memoryview] = []
        for segment, offset, header in self._headers(after_scn, last):
            try:
                parts.append(read_index(segment.view, header, offset))
            except ProtocolError as error:
                raise corrupt(segment.name, offset, error.message) from error
        every = join_indexes(parts)
        return _joined(every[(every["scn"] > after_scn) & (every["scn"] <= last)])

    def newest_at(self, scn: int) -> np.void | None:
        """Return the entry of the newest whole transaction up to an SCN, None when none is held there.

        Raises:
            ScnNotFound: as `blocks`.
            CorruptSegment: as `index`.
        """
        record = self._chain.refresh()
        _check_position(scn, record.tail)
        links = self._chain.links[: self._chain.first_link(scn) + 1]
        for link in reversed(links):
            entries = self.index(max(link.header.base_scn, record.tail.oldest_scn), scn)
            if len(entries):
                found: np.void = entries[-1]
                return found
        return None

    def _headers(self, after_scn: int, last_scn: int) -> Iterator[Stored]:
        """Yield the blocks that touch the range, and blocks without transactions between and behind them."""
        for link in self._chain.links[self._chain.first_link(after_scn) :]:
            segment = self._chain.live_segment(link.name, after_scn)
            for offset, header in segment.headers(after_scn, link.length):
                if header.transactions and header.first_scn > last_scn:
                    return
                if not header.transactions or header.last_scn > after_scn:
                    yield Stored(segment, offset, header)

    def _stored(self, ref: BlockRef) -> Stored:
        """Return where the block of a ref lies."""
        name = SegmentName.parse(ref.segment)
        if name is None:
            raise ValueError(f"not a segment: {ref.segment!r}")
        segment = self._chain.live_segment(name, ref.first_scn)
        return Stored(segment, ref.offset, segment.header_at(ref.offset, ref.length))


def _decoded(run: list[Stored], schema_ids: Collection[int] | None) -> Iterator[Block]:
    """Yield the blocks as one; one by one up to the damage, when there is some."""
    try:
        # As `BlockFrame` makes them, for a third of the time; blocks may be tiny.
        frames = [
            tuple.__new__(
                BlockFrame, (at.header, at.segment.bytes_of(at.offset, at.header.length), None)
            )
            for at in run
        ]
        whole = decode_merged(frames, schema_ids=schema_ids)
    except (ProtocolError, CorruptSegment):
        # One by one tells which of them it is.
        pass
    else:
        yield from whole
        return
    for segment, offset, header in run:
        yield segment.decode(offset, header.length, schema_ids)


def _check_position(scn: int, tail: Tail) -> None:
    if not tail.oldest_scn <= scn <= tail.covered_scn:
        raise ScnNotFound(scn, tail.oldest_scn, tail.covered_scn)


def _limit(upto_scn: int | None, newest: int) -> int:
    return newest if upto_scn is None else min(upto_scn, newest)


def _joined(entries: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Return the entries with neighbours of one SCN made one."""
    if not len(entries):
        return entries
    starts = np.flatnonzero(np.diff(entries["scn"], prepend=entries["scn"][0] - 1))
    joined = entries[starts]
    changes = np.add.reduceat(entries["changes"].astype(np.int64), starts)
    joined["changes"] = np.minimum(changes, np.iinfo(np.int32).max)
    joined["last_piece"] = 1
    return joined


def _size(path: Path) -> int:
    """Return the length of a file, 0 when retention was faster."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
