"""From events to lines: the envelope, and the numbers that show what is missing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

from headrace.observe.tap.events import OUT_OF_BAND, VERSION, Event
from headrace.observe.tap.keys import ShowKey, plain_key
from headrace.observe.tap.port import Told

__all__ = ["Envelope", "Numbered"]


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Numbered:
    """Events with the numbers that they got: ``seq`` is the first one's."""

    told: Told
    seq: int
    at: datetime
    run_id: str
    source_id: str

    def lines(self, show_key: ShowKey) -> Iterator[tuple[int, str]]:
        """Yield each event's number and line, newline included."""
        for place, event in enumerate(self.told.events()):
            yield self.seq + place, self.line(event, self.seq + place, show_key)

    def line(self, event: Event, seq: int | None, show_key: ShowKey) -> str:
        """Return one event as a line; ``v, seq, ts, run_id, source_id, kind`` and then its own fields."""
        value: dict[str, Any] = {
            "v": VERSION,
            "seq": None if isinstance(event, OUT_OF_BAND) else seq,
            "ts": self.at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "run_id": self.run_id,
            "source_id": self.source_id,
            "kind": event.kind,
        }
        for item in fields(event):
            found = getattr(event, item.name)
            if found is not None:
                value[item.name.rstrip("_")] = _shown(found, show_key)
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"


def _shown(value: Any, show_key: ShowKey) -> Any:
    """Show keys, which are tuples, alone and in lists; leave everything else."""
    if isinstance(value, tuple):
        return show_key(value)
    if isinstance(value, list):
        return [_shown(item, show_key) for item in value]
    return value


class Envelope:
    """Gives out the numbers of one run at a time.

    Args:
        now: the time that a line carries.
        show_key: how keys look.
    """

    def __init__(self, now: Callable[[], datetime] = _now, show_key: ShowKey = plain_key) -> None:
        self._now = now
        self.show_key = show_key
        self._lock = threading.Lock()
        self._next = 0
        self.run_id = self.source_id = ""

    def begin(self, run_id: str, source_id: str) -> None:
        """Begin a run: numbers start at 0."""
        with self._lock:
            self.run_id, self.source_id, self._next = run_id, source_id, 0

    def number(self, told: Told) -> Numbered:
        """Give the events their numbers."""
        with self._lock:
            first = self._next
            self._next += told.count
            return Numbered(told, first, self._now(), self.run_id, self.source_id)

    def aside(self, event: Event) -> str:
        """Return the line of an event that carries no number."""
        return Numbered(event, 0, self._now(), self.run_id, self.source_id).line(
            event, None, self.show_key
        )
