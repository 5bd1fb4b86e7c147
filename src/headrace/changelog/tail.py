"""The tail: how far the log is durable, told by the writer to readers in every process.

One page, mapped by both sides. It has two slots that are written in turn, each under a checksum, so a reader always
finds a whole record and a writer killed in the middle leaves the one before. The page is written after the
blocks it speaks of are durable, never before. Each writer puts a new file in place of the old one: a reader notices
by the inode, and a writer whose file is no longer the one in the folder knows that it has been succeeded.
The page's last word is a bell (`headrace.changelog.bell`), by which a reader that waits is woken.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from headrace.changelog.bell import Bell
from headrace.changelog.segment import NO_SEGMENT, SegmentName
from headrace.durable import sync_folder
from headrace.errors import ChangeLogError, ChangeLogLost, CorruptSegment, LeaseLost

__all__ = ["Tail", "TailFile", "TailRecord", "TailView"]

_NAME = "tail"
_MAGIC = b"HRTL"
_VERSION = 1
_RECORD = struct.Struct("<4sHHQQQQQQqqqq")
_CRC = struct.Struct("<I")
_SEQUENCE = struct.Struct("<Q")
_SEQUENCE_AT = 16
_SEQUENCE_BITS = 65
"""Of two sequences together."""
_PAGE = 4096
_SLOT = _PAGE // 2
_BELL_AT = _PAGE - 4
_TORN_FOR_S = 1.0
"""A record is written in less than a microsecond; both slots unreadable for this long is damage."""
_HEARD_S = 0.001
"""How long a reader relies on the bell. That of a page which is no more the log's rings for nobody; and who has slept
for long is slow to begin with, for the processor's caches have forgotten him."""


@dataclass(frozen=True, slots=True)
class Tail:
    """What the log can serve.

    Attributes:
        oldest_scn: every transaction above this SCN and up to ``complete_scn`` is there; 0 when none was dropped.
        complete_scn: SCN of the newest whole transaction, 0 when there is none.
        covered_scn: the source had no other transaction up to here; at least ``complete_scn``.
        last_commit_us: commit time of the newest whole transaction.
    """

    oldest_scn: int = 0
    complete_scn: int = 0
    covered_scn: int = 0
    last_commit_us: int = 0


@dataclass(frozen=True, slots=True)
class TailRecord:
    """One slot of the page.

    Attributes:
        generation: of the writer.
        sequence: rises with each record, across generations too.
        segment: newest segment with durable blocks, `NO_SEGMENT` in an empty log.
        length: bytes of it that count.
        first_number: number of the oldest segment that was kept.
        tail: what the log can serve.
    """

    generation: int = 0
    sequence: int = 0
    segment: SegmentName = NO_SEGMENT
    length: int = 0
    first_number: int = 0
    tail: Tail = Tail()

    def encode(self) -> bytes:
        """Return the slot's bytes."""
        data = _RECORD.pack(
            _MAGIC,
            _VERSION,
            0,
            self.generation,
            self.sequence,
            self.segment.number,
            self.segment.generation,
            self.length,
            self.first_number,
            self.tail.oldest_scn,
            self.tail.complete_scn,
            self.tail.covered_scn,
            self.tail.last_commit_us,
        )
        return data + _CRC.pack(zlib.crc32(data))

    @classmethod
    def sequences(cls, page: bytes | mmap.mmap) -> tuple[int, int]:
        """Return the sequence of each slot, unchecked."""
        (first,) = _SEQUENCE.unpack_from(page, _SEQUENCE_AT)
        (second,) = _SEQUENCE.unpack_from(page, _SLOT + _SEQUENCE_AT)
        return first, second

    @classmethod
    def newest(cls, page: bytes | mmap.mmap) -> TailRecord | None:
        """Return the newest whole record of a page, None when both slots are torn."""
        first, second = cls.sequences(page)
        # The one that was written last, as a rule; where that is torn, its sequence means nothing.
        newest, other = (0, _SLOT) if first >= second else (_SLOT, 0)
        found = cls._slot(page, newest)
        if found is not None and found.sequence >= max(first, second):
            return found
        slots = [slot for slot in (found, cls._slot(page, other)) if slot]
        return max(slots, key=lambda slot: slot.sequence, default=None)

    @classmethod
    def _slot(cls, page: bytes | mmap.mmap, at: int) -> TailRecord | None:
        return cls._decode(page[at : at + _RECORD.size + _CRC.size])

    @classmethod
    def _decode(cls, data: bytes) -> TailRecord | None:
        if len(data) < _RECORD.size + _CRC.size:
            return None
        magic, version, _, generation, sequence, number, made_by, *rest = _RECORD.unpack_from(data)
        if (
            magic != _MAGIC
            or zlib.crc32(data[: _RECORD.size]) != _CRC.unpack_from(data, _RECORD.size)[0]
        ):
            return None
        if version != _VERSION:
            raise ChangeLogError(
                f"The change log's tail has version {version}, and this program reads {_VERSION}.",
                next_step="run the version of headrace that wrote the log.",
            )
        return cls(
            generation, sequence, SegmentName(made_by, number), rest[0], rest[1], Tail(*rest[2:])
        )


class TailFile:
    """The writer's side of the page."""

    def __init__(self, folder: Path, record: TailRecord) -> None:
        """Put a new page with ``record`` in place of the old one; durable when it returns."""
        self._path = folder / _NAME
        self._place = str(self._path)
        self.record = record
        draft = self._path.with_name(f"{_NAME}.{record.generation}.tmp")
        # The identity is taken before the name is: after the rename it could already be a successor's.
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            slot = record.encode().ljust(_SLOT, b"\0")
            if os.write(descriptor, slot + slot) < _PAGE:
                # A part of it was taken: there is no room for the rest.
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
            self._identity = _identity(os.fstat(descriptor))
            self._page = mmap.mmap(descriptor, _PAGE)
            self._bell = Bell(self._page, _BELL_AT)
        finally:
            os.close(descriptor)
        draft.replace(self._path)
        sync_folder(folder)

    def check(self) -> None:
        """Return while this writer is the log's newest.

        Raises:
            LeaseLost: another writer has taken over.
            ChangeLogLost: the folder was removed.
        """
        try:
            same = _identity(os.stat(self._place)) == self._identity
        except FileNotFoundError as error:
            raise ChangeLogLost(
                f"The change log {self._path.parent} was removed while it was being written.",
                next_step="dump all tables again; nothing after the last acknowledged position is lost.",
            ) from error
        if not same:
            raise LeaseLost(
                f"The writer of generation {self.record.generation} of the change log "
                f"{self._path.parent} has been succeeded by another process.",
                next_step="let this process end; the other one does its work.",
            )

    def publish(self, record: TailRecord) -> None:
        """Show ``record`` to every reader, and wake those that wait."""
        self.record = TailRecord(
            record.generation,
            self.record.sequence + 1,
            record.segment,
            record.length,
            record.first_number,
            record.tail,
        )
        data = self.record.encode()
        start = self.record.sequence % 2 * _SLOT
        self._page[start : start + len(data)] = data
        self._bell.ring()

    def flush(self) -> None:
        """Put the page on disk, so that a start after a power cut knows what was durable."""
        self._page.flush()

    def close(self) -> None:
        """Release the page."""
        self._bell.close()
        self._page.close()


class TailView:
    """A reader's side of the page. Used from one thread.

    Attributes:
        pages: that were opened: each writer begins with one of its own.
    """

    def __init__(self, folder: Path) -> None:
        self.pages = 0
        self._path = folder / _NAME
        self._place = str(self._path)
        self._page: mmap.mmap | None = None
        self._bell: Bell | None = None
        self._rung = 0
        self._identity: tuple[int, int] | None = None
        self._seen: tuple[tuple[int, int], TailRecord] | None = None

    def read(self) -> TailRecord | None:
        """Return the newest record, None when there is no change log here.

        Raises:
            CorruptSegment: when the page is damaged.
        """
        deadline = time.monotonic() + _TORN_FOR_S
        while True:
            page = self._current_page()
            if page is None:
                return None
            # Before the record: what is published in between rings again.
            self._rung = self._bell.rung if self._bell is not None else 0
            # Before the record, too: with neither of them changed, what was the newest record still is.
            sequences = TailRecord.sequences(page)
            if self._seen is not None and self._seen[0] == sequences:
                return self._seen[1]
            if record := TailRecord.newest(page):
                # Of one that is being written only the sequence may be there: that is looked for again.
                self._seen = (sequences, record) if record.sequence == max(sequences) else None
                return record
            if time.monotonic() > deadline:
                raise damaged_tail(self._path.parent)

    def wait(self, timeout_s: float) -> None:
        """Return as soon as something was published after the last `read`; after a while in any case."""
        timeout_s = min(timeout_s, _HEARD_S)
        if self._bell is None:
            time.sleep(timeout_s)
        else:
            self._bell.wait(self._rung, timeout_s)

    def sequence(self) -> int:
        """Return a number that changes with each record and page, unchecked; -1 when there is no change log here.

        Costs a microsecond, so that many can look often; what has changed then is a matter for `read`.

        Raises:
            CorruptSegment: when the page is too short.
        """
        page = self._current_page()
        if page is None:
            return -1
        return self.pages << _SEQUENCE_BITS | sum(TailRecord.sequences(page))

    def _current_page(self) -> mmap.mmap | None:
        try:
            if self._page is not None and _identity(os.stat(self._place)) == self._identity:
                return self._page
            descriptor = os.open(self._place, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            status = os.fstat(descriptor)
            if status.st_size < _PAGE:
                raise damaged_tail(self._path.parent)
            self._identity = _identity(status)
            self._page = mmap.mmap(descriptor, _PAGE, access=mmap.ACCESS_READ)
            self._bell = Bell(self._page, _BELL_AT)
            self._seen = None
            self.pages += 1
        finally:
            os.close(descriptor)
        return self._page


def damaged_tail(folder: Path) -> CorruptSegment:
    """Return the error for a page without one whole record."""
    return CorruptSegment(
        f"The tail of the change log {folder} is damaged.",
        next_step="stop every process of this replicator and start it again: the tail is rebuilt.",
    )


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
