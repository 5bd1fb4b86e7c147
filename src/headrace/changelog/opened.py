"""The chain of segments as it was last published, opened: what every kind of reader stands on.

In: a folder. Out: the published tail, the links of the chain, and their files, mapped once each. Used from one thread.
"""

from __future__ import annotations

import os
from pathlib import Path

from headrace.changelog.chain import Link, follow
from headrace.changelog.mapped import MappedSegment
from headrace.changelog.segment import NO_SEGMENT, SegmentHeader, SegmentName
from headrace.changelog.tail import Tail, TailRecord, TailView
from headrace.errors import ChangeLogLost, ScnNotFound

__all__ = ["OpenedChain"]


class OpenedChain:
    """Opens the log in a folder, which need not exist yet.

    Attributes:
        links: the log's segments at the last `refresh`, oldest first.
        life: how often the folder was found to hold another log than before, or an older copy of it. What is known of
            places in files is worth nothing in the next life: names of segments come again, what they hold does not.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.links: list[Link] = []
        self.life = 0
        self._pages = 0
        self._view = TailView(folder)
        self._record = TailRecord()
        self._segments: dict[SegmentName, MappedSegment] = {}

    def tail(self) -> Tail:
        """Return what the log can serve now; all zero when there is no log."""
        return (self._view.read() or TailRecord()).tail

    def wait(self, timeout_s: float) -> None:
        """Return as soon as the log has grown since the last `tail` or `refresh`; after a while in any case."""
        self._view.wait(timeout_s)

    def sequence(self) -> int:
        """Return a number that changes with each publication and writer, in a microsecond; -1 without a log."""
        return self._view.sequence()

    def refresh(self) -> TailRecord:
        """Bring the links up to the published tail, and return that.

        Raises:
            ChangeLogLost: segments that the tail speaks of are missing.
            CorruptSegment: the tail, or the header of a segment, is damaged.
        """
        missed = -1
        while True:
            record = self._view.read() or TailRecord()
            is_other = record.sequence < self._record.sequence or self._is_replaced()
            if is_other:
                self.life += 1
                self._segments.clear()
            elif record == self._record:
                return record
            if self._only_grew(record) and self._segments:
                self.links[-1] = Link(self.links[-1].header, record.length)
            else:
                self.links = self._chain(record)
                if not self._reaches(record):
                    if record.first_number == missed:
                        raise self._lost()
                    # Retention may have been at work meanwhile: it has, if the oldest is another one by now.
                    missed = record.first_number
                    continue
            self._record = record
            return record

    def first_link(self, after_scn: int) -> int:
        """Return the place in ``links`` of the segment in which the first block above an SCN may lie."""
        # Everything in a segment lies at or below what stands before the next one.
        begin = 0
        low, high = 0, len(self.links)
        while low < high:
            middle = (low + high) // 2
            if self.links[middle].header.base_scn <= after_scn:
                begin, low = middle, middle + 1
            else:
                high = middle
        return begin

    def segment(self, name: SegmentName) -> MappedSegment:
        """Return the file of a segment.

        Raises:
            FileNotFoundError: it does not exist (any more).
            CorruptSegment: its header is damaged.
        """
        segment = self._segments.get(name)
        if segment is None:
            segment = self._segments[name] = MappedSegment(self.folder, name)
        return segment

    def live_segment(self, name: SegmentName, after_scn: int) -> MappedSegment:
        """Return the file of a segment that a reader at an SCN needs.

        Raises:
            ScnNotFound: it was dropped.
            CorruptSegment: as `segment`.
        """
        try:
            return self.segment(name)
        except FileNotFoundError as error:
            tail = self.tail()
            raise ScnNotFound(after_scn, tail.oldest_scn, tail.covered_scn) from error

    def _is_replaced(self) -> bool:
        """Return whether a writer has come, and files that were opened have others in their places."""
        if self._view.pages == self._pages:
            return False
        self._pages = self._view.pages
        return any(
            _identity(self.folder / str(name)) not in (None, segment.identity)
            for name, segment in self._segments.items()
        )

    def _only_grew(self, record: TailRecord) -> bool:
        old = self._record
        return bool(self.links) and (old.generation, old.segment, old.first_number) == (
            record.generation,
            record.segment,
            record.first_number,
        )

    def _chain(self, record: TailRecord) -> list[Link]:
        if record.segment == NO_SEGMENT:
            links = []
        else:
            links = follow(record.segment, record.length, record.first_number, self._header)
        kept = {link.name for link in links}
        self._segments = {name: seg for name, seg in self._segments.items() if name in kept}
        return links

    def _reaches(self, record: TailRecord) -> bool:
        if record.segment == NO_SEGMENT:
            return True
        return bool(self.links) and self.links[0].name.number == record.first_number

    def _lost(self) -> ChangeLogLost:
        return ChangeLogLost(
            f"Segments of the change log {self.folder} are missing.",
            next_step="restore the folder from a backup, or delete all of it and dump all tables again.",
        )

    def _header(self, name: SegmentName) -> SegmentHeader | None:
        try:
            return self.segment(name).header
        except FileNotFoundError:
            return None


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file, None where there is none."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
