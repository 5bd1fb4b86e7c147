"""Keeps an eye on the log that the source keeps for us, beside a running capture.

In: a source's `LogWatch`. Out: numbers in the capture's report every few seconds, and a warning in its log when what we
have not read is in danger. It has a thread and a connection of its own, so the log's reader never waits for it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator

from headrace.errors import HeadraceError
from headrace.replicator.worker import Report
from headrace.sources.database import KeptLog, LogWatch

__all__ = ["log_watched"]

_LOG = logging.getLogger(__name__)

EVERY_S = 10.0
REPEAT_S = 600.0
"""A warning that stays true is repeated after this time."""
_STOP_S = 5.0


@contextlib.contextmanager
def log_watched(watch: LogWatch, report: Report, every_s: float = EVERY_S) -> Iterator[None]:
    """Report how much log the source keeps until the block ends."""
    stop = threading.Event()
    thread = threading.Thread(
        target=_watch, args=(watch, report, every_s, stop), name="log-watch", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(_STOP_S)


def _watch(watch: LogWatch, report: Report, every_s: float, stop: threading.Event) -> None:
    warnings = _Warnings()
    with contextlib.closing(watch):
        while True:
            # The capture says itself when the source is away.
            with contextlib.suppress(HeadraceError):
                seen = watch.look(time.monotonic())
                report({"slot": {**seen.to_json(), "seen_us": time.time_ns() // 1000}})
                warnings.tell(seen, time.monotonic())
            if stop.wait(every_s):
                return


class _Warnings:
    """Says a warning when it comes up, and now and then while it stays."""

    def __init__(self) -> None:
        self._status = ""
        self._next = 0.0

    def tell(self, seen: KeptLog, now_s: float) -> None:
        """Write the warning to the log unless it was just said."""
        if not seen.warning:
            self._status = ""
        elif seen.status != self._status or now_s >= self._next:
            self._status, self._next = seen.status, now_s + REPEAT_S
            _LOG.warning("%s", seen.warning)
