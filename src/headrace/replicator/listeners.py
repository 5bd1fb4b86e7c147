"""Everybody who listens to the taps of replicators over HTTP, each with what it was sent and what it lacks.

In: the files that a capture's tap writes. Out: their lines for each `Listener`, at its own pace: nothing is held in
memory for it, and one that is slow goes on near the end of the files, told how many lines it lacks.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.errors import TooManyRequests
from headrace.observe.tap.events import StreamDropped, TapDropped
from headrace.observe.tap.reading import Line, LineReader, Order, parse

__all__ = ["MOST_BEHIND_BYTES", "MOST_LISTENERS", "TAIL_BYTES", "Listener", "Listeners"]

MOST_LISTENERS = 64
"""How many may listen to one control plane; each costs a descriptor, and a look at a file ten times a second."""
MOST_BEHIND_BYTES = 8 << 20
"""Bytes that one may be behind before lines are left out for it."""
TAIL_BYTES = 1 << 20
"""Bytes at the end of the files with which one begins, and goes on when it was too slow."""


@dataclass(eq=False)
class Listener:
    """One who listens; used from one thread at a time.

    Args:
        who: name of whom it is.
        path: of the tap's newer file.

    Attributes:
        since_ms: when it began, milliseconds since 1970 UTC.
        sent: lines that were sent.
        dropped: numbered lines that were left out because it was too slow.
    """

    who: str
    path: Path
    since_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    sent: int = 0
    dropped: int = 0
    _order: Order = field(default_factory=Order)
    _reader: LineReader | None = None

    def begin(self, last: int) -> list[str]:
        """Return the newest lines that are there now, at most ``last`` of those in `TAIL_BYTES`."""
        reader = self._opened()
        held: deque[str] = deque(maxlen=last)
        while lines := reader.read():
            held.extend(text for text in lines if parse(text) is not None)
        return self._told(list(held))

    def read(self) -> list[str]:
        """Return the lines that have come since, none where nothing has; never waits."""
        reader = self._opened()
        if reader.behind_bytes > MOST_BEHIND_BYTES:
            reader.close()
            self._reader = None
            reader = self._opened()
        return self._told(reader.read())

    def close(self) -> None:
        """Close what is open."""
        if self._reader is not None:
            self._reader.close()

    def _opened(self) -> LineReader:
        if self._reader is None:
            self._reader = LineReader(self.path, TAIL_BYTES)
        return self._reader

    def _told(self, lines: list[str]) -> list[str]:
        told = []
        for text in lines:
            line = parse(text)
            if line is None:
                # Half a line that a dead process has left.
                continue
            missed = self._order.missed if line["run_id"] == self._order.run_id else 0
            self._order.take(line)
            lacking = self._order.missed - missed
            if line["kind"] == TapDropped.kind:
                # The tap itself has left those out, for everybody.
                lacking = max(0, lacking - line["dropped"])
            if lacking:
                self.dropped += lacking
                told.append(_notice(line, lacking, self.dropped))
            told.append(text)
        self.sent += len(told)
        return told


def _notice(line: Line, dropped: int, total: int) -> str:
    notice: dict[str, Any] = {
        name: line[name] for name in ("v", "seq", "ts", "run_id", "source_id")
    }
    notice |= {"seq": None, "kind": StreamDropped.kind, "dropped": dropped, "total": total}
    return json.dumps(notice, ensure_ascii=False, separators=(",", ":"))


class Listeners:
    """Those of one control plane, by number of the replicator; may be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[int, list[Listener]] = {}

    def of(self, number: int) -> list[Listener]:
        """Return those of a replicator, in the order in which they came."""
        with self._lock:
            return list(self._held.get(number, ()))

    @contextmanager
    def joined(self, number: int, listener: Listener) -> Iterator[Listener]:
        """Let somebody listen inside the block.

        Raises:
            TooManyRequests: too many listen already.
        """
        with self._lock:
            if sum(map(len, self._held.values())) >= MOST_LISTENERS:
                raise TooManyRequests(
                    f"{MOST_LISTENERS} listen to taps already.",
                    next_step="wait until one has left.",
                )
            own = self._held.setdefault(number, [])
            own.append(listener)
        try:
            yield listener
        finally:
            with contextlib.suppress(OSError):
                listener.close()
            with self._lock:
                own.remove(listener)
                if not own:
                    self._held.pop(number, None)
