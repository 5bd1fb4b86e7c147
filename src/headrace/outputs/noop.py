"""An output that delivers nowhere and counts: for measuring what stands before it."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.client import Batch, Consumer, Window
from headrace.model.block import SystemEvent

__all__ = ["Counts", "NoopOutput"]


@dataclass(frozen=True, slots=True)
class Counts:
    """What was delivered.

    Attributes:
        windows: to their end.
        rows: change rows; an update of two images is two.
        bytes: of their Arrow buffers; where only a part was asked for of what came together, of all of it.
        events: of the system stream.
        last_scn: of the last window that ended, 0 before one did.
    """

    windows: int = 0
    rows: int = 0
    bytes: int = 0
    events: int = 0
    last_scn: int = 0


class NoopOutput(Consumer):
    """Counts what comes, also what comes twice."""

    def __init__(self) -> None:
        self._windows = self._rows = self._bytes = self._events = self._last_scn = 0

    @property
    def counts(self) -> Counts:
        """What was delivered so far."""
        return Counts(self._windows, self._rows, self._bytes, self._events, self._last_scn)

    def on_data_batch(self, batch: Batch) -> None:
        """Count rows and bytes."""
        self._rows += batch.rows.num_rows
        rows = batch.rows
        # What a part refers to has to be worked out, which is most of what a small batch costs besides.
        self._bytes += rows.get_total_buffer_size() if batch.whole else rows.nbytes

    def on_system_event(self, event: SystemEvent) -> None:
        """Count it."""
        del event
        self._events += 1

    def on_end_window(self, window: Window) -> None:
        """Count it."""
        self._windows += 1
        self._last_scn = window.scn
