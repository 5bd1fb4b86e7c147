"""Keeps an eye on the log that our slot holds back at the source, beside a running capture.

In: settings of the source. Out: numbers in the capture's report every few seconds, and a warning in its log when the
slot is in danger. It has a thread and a connection of its own, so the log's reader never waits for it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator

from headrace.errors import HeadraceError
from headrace.replicator.worker import Report
from headrace.sources.postgres.connection import Session, connect
from headrace.sources.postgres.retained import Retained, RetainedWatch
from headrace.sources.postgres.settings import PostgresSettings

__all__ = ["slot_watched"]

_LOG = logging.getLogger(__name__)

EVERY_S = 10.0
REPEAT_S = 600.0
"""A warning that stays true is repeated after this time."""
_STOP_S = 5.0


@contextlib.contextmanager
def slot_watched(
    settings: PostgresSettings, report: Report, every_s: float = EVERY_S
) -> Iterator[None]:
    """Report how much log the slot keeps until the block ends."""
    stop = threading.Event()
    thread = threading.Thread(
        target=_watch, args=(settings, report, every_s, stop), name="slot-watch", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(_STOP_S)


def _watch(
    settings: PostgresSettings, report: Report, every_s: float, stop: threading.Event
) -> None:
    watch, warnings = RetainedWatch(settings.slot_name), _Warnings()
    session: Session | None = None
    while True:
        try:
            if session is None:
                session = connect(settings)
            seen = watch.look(session, time.monotonic())
        except HeadraceError:
            # The capture says itself when the source is away.
            if session is not None:
                session.close()
            session = None
        else:
            report({"slot": {**seen.to_json(), "seen_us": time.time_ns() // 1000}})
            warnings.tell(seen, time.monotonic())
        if stop.wait(every_s):
            break
    if session is not None:
        session.close()


class _Warnings:
    """Says a warning when it comes up, and now and then while it stays."""

    def __init__(self) -> None:
        self._status = ""
        self._next = 0.0

    def tell(self, seen: Retained, now_s: float) -> None:
        """Write the warning to the log unless it was just said."""
        if not seen.warning:
            self._status = ""
        elif seen.wal_status != self._status or now_s >= self._next:
            self._status, self._next = seen.wal_status, now_s + REPEAT_S
            _LOG.warning("%s", seen.warning)
