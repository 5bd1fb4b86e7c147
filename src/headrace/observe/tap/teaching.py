"""The tap for teaching: everything stands still until the reader has taken the last event.

The reader leaves a bookmark, a small file with the run and the number that it has read. Never for production: while
nobody reads, capture waits, and the source keeps its log.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol

from headrace.observe.tap.events import (
    Event,
    KeyForm,
    StreamResumed,
    StreamStandby,
    TapOpened,
)
from headrace.observe.tap.lines import Envelope
from headrace.observe.tap.port import Told

__all__ = ["Bookmark", "TeachingTap"]

STANDBY_S = 1.0
"""A reader that takes longer is told of."""
_LOOK_S = 0.01


class Bookmark:
    """How far a reader has read, in a file beside the lines."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def put(self, run_id: str, seq: int) -> None:
        """Say that everything up to ``seq`` has been read."""
        draft = self._path.with_suffix(".tmp")
        draft.touch(mode=0o600)
        draft.write_text(f"{run_id} {seq}\n", encoding="utf-8")
        draft.replace(self._path)

    def get(self, run_id: str) -> int:
        """Return the last number of the run that was read, -1 for none."""
        try:
            run, seq = self._path.read_text(encoding="utf-8").split()
            return int(seq) if run == run_id else -1
        except (OSError, ValueError):
            return -1


class Writer(Protocol):
    """Takes lines."""

    def write(self, text: str) -> None:
        """Append whole lines."""
        ...


class TeachingTap:
    """Writes each event and waits until it was read.

    Args:
        writer: takes the lines.
        envelope: numbers them.
        read_to: returns the last number of a run that the reader has taken.
        stopping: whether to wait no more.
        rows: whether single rows are told.
        mode: told to the reader.
        hashed: whether keys are hashes; only told.
        clock: monotonic seconds; ``sleep`` waits so many.
    """

    on = True
    dropped = 0

    def __init__(
        self,
        writer: Writer,
        envelope: Envelope,
        read_to: Callable[[str], int],
        stopping: Callable[[], bool] = lambda: False,
        *,
        rows: bool = True,
        mode: Literal["teach", "scenario"] = "teach",
        hashed: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.rows = rows
        self._writer = writer
        self._envelope = envelope
        self._read_to = read_to
        self._stopping = stopping
        self._mode = mode
        self._hashed = hashed
        self._clock = clock
        self._sleep = sleep
        # Whoever else tells stands still as well.
        self._lock = threading.Lock()

    def begin(self, run_id: str, source_id: str) -> None:
        """Begin a run."""
        self._envelope.begin(run_id, source_id)
        keys: KeyForm = "hashed" if self._hashed else "plain"
        self.emit(TapOpened(mode=self._mode, keys=keys, rows=self.rows))

    def emit(self, told: Told) -> None:
        """Write the events one by one; return when the last was read."""
        with self._lock:
            for seq, line in self._envelope.number(told).lines(self._envelope.show_key):
                try:
                    self._writer.write(line)
                except OSError:
                    # What cannot be written cannot be read; the tap is not worth a capture.
                    continue
                self._wait_for(seq)

    def _wait_for(self, seq: int) -> None:
        since = self._clock()
        stands = False
        while self._read_to(self._envelope.run_id) < seq and not self._stopping():
            waited = self._clock() - since
            if waited >= STANDBY_S and not stands:
                stands = True
                self._aside(
                    StreamStandby(
                        queue_full_ms=round(waited * 1000),
                        queue_capacity=1,
                        message=f"capture stands still until event {seq} was read",
                    )
                )
            self._sleep(_LOOK_S)
        if stands:
            self._aside(StreamResumed(standby_total_ms=round((self._clock() - since) * 1000)))

    def _aside(self, event: Event) -> None:
        with contextlib.suppress(OSError):
            self._writer.write(self._envelope.aside(event))
