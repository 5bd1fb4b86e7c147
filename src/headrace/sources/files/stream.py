"""The log of a feed: whole transactions as the files have them, and our marks behind them."""

from __future__ import annotations

import collections
import threading
import time

from headrace.errors import SourceUnavailable
from headrace.model.mark import Mark
from headrace.sources.base import LogItem, ReceivedMark
from headrace.sources.files.assembler import Assembler
from headrace.sources.files.lines import FeedLines
from headrace.sources.files.place import PlaceFile
from headrace.sources.files.settings import FilesSettings

__all__ = ["FilesLogReader", "MarkQueue", "QueueWriter"]

_NOTE_S = 1.0


class MarkQueue:
    """Marks on their way from the writer's thread to the reader's."""

    def __init__(self) -> None:
        self._marks: collections.deque[Mark] = collections.deque()
        self.written = threading.Event()

    def put(self, mark: Mark) -> None:
        """Hand a mark over."""
        self._marks.append(mark)
        self.written.set()

    def take(self) -> Mark | None:
        """Return the oldest mark, None where there is none."""
        return self._marks.popleft() if self._marks else None

    def peek(self) -> bool:
        """Whether there is a mark."""
        return bool(self._marks)

    def clear(self) -> None:
        """Forget all: their windows are void."""
        self._marks.clear()


class QueueWriter:
    """`headrace.sources.base.WatermarkWriter` of a feed."""

    def __init__(self, queue: MarkQueue) -> None:
        self._queue = queue

    def write(self, mark: Mark) -> None:
        """Return when the mark is on its way."""
        self._queue.put(mark)

    def close(self) -> None:
        """Do nothing: there is no connection."""


class FilesLogReader:
    """Reads one feed.

    Args:
        settings: of the source.
        lines: of the feed, from our place on.
        assembler: collects them.
        place: where we stand.
        queue: our marks.
    """

    def __init__(
        self,
        settings: FilesSettings,
        lines: FeedLines,
        assembler: Assembler,
        place: PlaceFile,
        queue: MarkQueue,
    ) -> None:
        self._settings = settings
        self._lines = lines
        self._assembler = assembler
        self._place = place
        self._queue = queue
        self._acknowledged = 0
        self._note_at = 0.0
        # A mark that was written before belongs to a window that is void.
        queue.clear()

    def poll(self, timeout_s: float) -> LogItem | None:
        """Return what has come; see `headrace.sources.base.LogReader.poll`.

        Raises:
            SourceUnavailable: the files cannot be read; open again.
            SlotLost: files that were not read are gone, or the feed says that it lacks changes.
            ProtocolError: a line is none of a feed.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            self._note()
            self._queue.written.clear()
            marked = self._queue.peek()
            at_end = self._gather()
            # Only a mark that was there before the end was: whatever its chunk saw has been read by now.
            if at_end and marked:
                return self._marked()
            if self._assembler.has_output:
                scn = self._assembler.scn
                return self._assembler.take(None, scn, more=not at_end)
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self._queue.written.wait(min(left, self._settings.poll_s))

    def acknowledge(self, position: str) -> None:
        """Note that everything up to ``position`` is durable here; written down now and then."""
        self._acknowledged = max(self._acknowledged, int(position))

    def keep_alive(self) -> None:
        """Do nothing: nobody minds here."""

    def close(self) -> None:
        """Let go of the files; our place stays."""
        self._lines.close()
        if self._acknowledged:
            self._place.acknowledge(self._acknowledged)

    def _gather(self) -> bool:
        """Read on until a hand-over is due; return whether all that is there was read."""
        try:
            while not self._assembler.full:
                if not self._assembler.open:
                    ahead = self._lines.ahead()
                    if ahead is None:
                        return True
                    self._assembler.begin(ahead)
                self._assembler.add(*self._lines.next(), self._lines.broken)
        except OSError as error:
            raise SourceUnavailable(
                f"The feed in {self._settings.folder} cannot be read: {error.strerror}.",
                next_step="see to the disk or the network; it is tried again.",
            ) from error
        return False

    def _marked(self) -> LogItem:
        mark = self._queue.take()
        assert mark is not None
        scn = self._place.next_mark(self._assembler.scn)
        received = ReceivedMark(mark, scn, time.time_ns() // 1000)
        return self._assembler.take(received, scn, more=self._queue.peek())

    def _note(self) -> None:
        if self._acknowledged and time.monotonic() >= self._note_at:
            self._place.acknowledge(self._acknowledged)
            self._note_at = time.monotonic() + _NOTE_S
