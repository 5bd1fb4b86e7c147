"""The tap for production: it drops and counts, and never holds up whoever tells."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from headrace.observe.tap.events import KeyForm, StreamHeartbeat, TapDropped, TapOpened
from headrace.observe.tap.lines import Envelope, Numbered
from headrace.observe.tap.port import Told
from headrace.observe.tap.recorder import Recorder

__all__ = ["RecordingTap"]

_LOG = logging.getLogger(__name__)

HEARTBEAT_S = 2.0
MOST_BYTES = 32 << 20
"""Columns that may wait to become lines."""
BATCH_LINES = 512
"""Lines of one write."""


class RecordingTap:
    """A bounded queue, and a thread that writes it to a file.

    What does not fit is dropped as it was told: the numbers are used up, so a reader sees the gap, and the next
    event that fits is preceded by the count.

    Args:
        recorder: takes the lines.
        envelope: numbers them.
        capacity: events that may wait.
        rows: whether single rows are told.
        hashed: whether keys are hashes; only told.
        clock: monotonic seconds.
    """

    on = True

    def __init__(
        self,
        recorder: Recorder,
        envelope: Envelope,
        capacity: int,
        *,
        rows: bool = True,
        hashed: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rows = rows
        self._recorder = recorder
        self._envelope = envelope
        self._capacity = capacity
        self._hashed = hashed
        self._clock = clock
        self._waiting: deque[Numbered] = deque()
        self._depth = self._bytes = 0
        self._dropped_now = self.dropped = 0
        self._beat_at = clock() + HEARTBEAT_S
        self._changed = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._work, name="headrace-tap", daemon=True)
        self._thread.start()

    def begin(self, run_id: str, source_id: str) -> None:
        """Begin a run."""
        self._envelope.begin(run_id, source_id)
        keys: KeyForm = "hashed" if self._hashed else "plain"
        self.emit(TapOpened(mode="record", keys=keys, rows=self.rows))

    def emit(self, told: Told) -> None:
        """Take events, or drop and count them."""
        with self._changed:
            if not self._fits(told):
                self._envelope.number(told)
                self._drop(told.count)
                return
            if self._dropped_now:
                self._say_dropped()
            elif self._clock() >= self._beat_at:
                self._beat_at = self._clock() + HEARTBEAT_S
                self._take(StreamHeartbeat(queue_depth=self._depth, queue_capacity=self._capacity))
            self._take(told)
            self._changed.notify()

    def _fits(self, told: Told) -> bool:
        # An empty queue takes what alone is larger than the queue's bytes, else it could never be told.
        roomy = not self._bytes or self._bytes + told.nbytes <= MOST_BYTES
        return roomy and self._depth + told.count <= self._capacity

    def _take(self, told: Told) -> None:
        self._waiting.append(self._envelope.number(told))
        self._depth += told.count
        self._bytes += told.nbytes

    def _say_dropped(self) -> None:
        notice = TapDropped(dropped=self._dropped_now, total=self.dropped)
        self._dropped_now = 0
        self._take(notice)

    def _drop(self, count: int) -> None:
        self._dropped_now += count
        self.dropped += count

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._ending:
                    self._changed.wait()
                if not self._waiting:
                    return
                item = self._waiting[0]
            self._write(item)
            with self._changed:
                self._waiting.popleft()
                self._depth -= item.told.count
                self._bytes -= item.told.nbytes

    def _write(self, item: Numbered) -> None:
        left = item.told.count
        try:
            lines = (line for _, line in item.lines(self._envelope.show_key))
            while batch := list(itertools.islice(lines, BATCH_LINES)):
                self._recorder.write("".join(batch))
                left -= len(batch)
        except Exception as error:  # noqa: BLE001 - the tap is not worth a capture
            _LOG.warning("the tap lost %d events: %s", left, type(error).__name__)
        if left:
            with self._changed:
                self._drop(left)

    def close(self) -> None:
        """Write what waits, and end."""
        with self._changed:
            if self._dropped_now:
                self._say_dropped()
            self._ending = True
            self._changed.notify()
        self._thread.join()
        self._recorder.close()
