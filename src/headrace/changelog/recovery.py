"""Finding the end of the log after whatever happened to its last writer.

The newest segment is checked block by block. Damage before the length that was published as durable is an error;
behind it, it is a torn write, and the log ends there. A transaction that has not ended is cut off as well: the
source sends it again from its beginning. Everything that was synced and whole is kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headrace.changelog.active import Sync
from headrace.changelog.chain import Link, follow
from headrace.changelog.index import walk
from headrace.changelog.mapped import MappedSegment
from headrace.changelog.progress import Progress
from headrace.changelog.segment import (
    NO_SEGMENT,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    SegmentName,
    corrupt,
    list_segments,
)
from headrace.changelog.tail import TailRecord
from headrace.errors import ChangeLogLost, CorruptSegment

__all__ = ["Recovered", "recover"]

_PIECE_BYTES = 4 * 2**20
"""Held in memory at once; the system moves no more than two gibibytes in a call."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What the log holds.

    Attributes:
        links: its segments, oldest first.
        progress: positions at its end; no transaction is open there.
    """

    links: list[Link]
    progress: Progress


def recover(folder: Path, record: TailRecord, sync: Sync) -> Recovered:
    """Return the log's chain up to its last whole transaction, all of it durable.

    Args:
        folder: of the log, which no other process writes.
        record: the last tail that was published, or an empty one.
        sync: makes a file durable.

    Raises:
        CorruptSegment: damage before the durable end.
        ChangeLogLost: the segment that the tail names is gone.
    """
    names = list_segments(folder)
    if not names:
        if record.segment != NO_SEGMENT:
            raise _lost(folder, record)
        return Recovered([], _progress_of(record))
    if record.segment not in (NO_SEGMENT, *names):
        raise _lost(folder, record)
    newest = MappedSegment(folder, names[-1])
    known = record.length if record.segment == newest.name else SEGMENT_HEADER_BYTES
    end, progress = _scan(newest, known)
    _settle(folder / str(newest.name), known, end, sync)
    links = follow(newest.name, end, record.first_number, _header_reader(folder))
    if links[0].name.number > max(record.first_number, 1) and record.segment != NO_SEGMENT:
        raise _lost(folder, record)
    if progress.is_open:
        links = _without(folder, links, progress.last_scn)
    covered = max(progress.covered_scn, record.tail.covered_scn)
    done = Progress(progress.complete_scn, progress.complete_scn, covered, progress.commit_us)
    return Recovered(links, done)


def _scan(segment: MappedSegment, known: int) -> tuple[int, Progress]:
    """Return where the intact blocks of a segment end, and the positions there."""
    end = SEGMENT_HEADER_BYTES
    progress = Progress.at(segment.header)
    try:
        for offset, block in walk(segment.view, end, segment.size, segment.name):
            segment.decode(offset, block.length, None)
            end = offset + block.length
            progress = progress.then(block)
    except CorruptSegment:
        if end < known:
            raise
    if end < known:
        raise corrupt(segment.name, end, f"the file ends before byte {known}")
    return end, progress


def _settle(path: Path, known: int, end: int, sync: Sync) -> None:
    """Make bytes durable that a dead writer had not synced, and drop what lies behind them.

    They are written again first: after a failed sync the kernel may hold them as clean although the disk does not.
    """
    descriptor = os.open(path, os.O_RDWR)
    try:
        for place in range(known, end, _PIECE_BYTES):
            piece = os.pread(descriptor, min(_PIECE_BYTES, end - place), place)
            os.pwrite(descriptor, piece, place)
        os.ftruncate(descriptor, max(known, end))
        sync(descriptor)
    finally:
        os.close(descriptor)


def _without(folder: Path, links: list[Link], scn: int) -> list[Link]:
    """Return the chain cut before the first piece of the open transaction ``scn``."""
    while links:
        last = links.pop()
        if last.header.base_scn >= scn:
            continue
        segment = MappedSegment(folder, last.name)
        for offset, block in segment.headers(scn - 1, last.length):
            if block.transactions and block.last_scn == scn:
                return [*links, Link(last.header, offset)]
        return [*links, last]
    return links


def _header_reader(folder: Path) -> Callable[[SegmentName], SegmentHeader | None]:
    def read(name: SegmentName) -> SegmentHeader | None:
        try:
            return MappedSegment(folder, name).header
        except FileNotFoundError:
            return None

    return read


def _progress_of(record: TailRecord) -> Progress:
    tail = record.tail
    return Progress(tail.complete_scn, tail.complete_scn, tail.covered_scn, tail.last_commit_us)


def _lost(folder: Path, record: TailRecord) -> ChangeLogLost:
    return ChangeLogLost(
        f"The change log {folder} had reached SCN {record.tail.complete_scn}, "
        f"but segments between number {record.first_number} and {record.segment} are gone.",
        next_step="restore the folder from a backup, or delete all of it and dump all tables again.",
    )
