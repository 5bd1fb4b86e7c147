"""Plays a scene through capture and returns what the tap tells: the same lines each time.

Everything is the product but the database. What differs from run to run is named anew, in order of appearance: the
run, the tokens and the requests; the clock counts events.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from headrace.changelog import ChangeLogSettings
from headrace.demo.scenes import script
from headrace.observe.tap.events import Event
from headrace.observe.tap.lines import Envelope
from headrace.observe.tap.port import Told
from headrace.observe.tap.teaching import TeachingTap
from headrace.replicator.capture_log import CaptureLog
from headrace.testing.scenario import Player, Scenario

__all__ = ["record"]

_START = datetime(2026, 1, 1, tzinfo=UTC)
_TICK_S = 0.001
FIRST_REQUEST = 41
"""Every table is asked for once before anybody asks for more; the request that people watch is then 42."""


def record(scene: str) -> str:
    """Return a scene's lines."""
    with tempfile.TemporaryDirectory(prefix="headrace-scene-") as folder:
        return _play(script(scene).read_text(encoding="utf-8"), Path(folder))


def _play(text: str, folder: Path) -> str:
    clock, reader = _Clock(), _Reader()
    reader.clock = clock
    lines: list[str] = []
    tap = _NamedAnew(
        TeachingTap(
            _List(lines),
            Envelope(clock.now),
            reader.read_to,
            mode="scenario",
            clock=clock.seconds,
            sleep=clock.sleep,
        )
    )
    with contextlib.closing(CaptureLog(folder / "changelog", ChangeLogSettings())) as log:
        scenario = Scenario(text)
        Player(scenario, folder, log, tap=tap, clock=clock.seconds, away=reader.leave).play()
    return "".join(lines)


@dataclass(slots=True)
class _List:
    lines: list[str]

    def write(self, text: str) -> None:
        self.lines.append(text)


class _Clock:
    """Goes on with each event, however often it is read in between."""

    def __init__(self) -> None:
        self._s = 0.0

    def seconds(self) -> float:
        return self._s

    def sleep(self, seconds: float) -> None:
        self._s += seconds

    def now(self) -> datetime:
        self._s += _TICK_S
        return _START + timedelta(microseconds=round(self._s * 1_000_000))


class _Reader:
    """Takes every event at once, unless it is away."""

    clock: _Clock
    back_at = 0.0

    def leave(self, milliseconds: int) -> None:
        self.back_at = self.clock.seconds() + milliseconds / 1000

    def read_to(self, run_id: str) -> int:
        del run_id
        return 1 << 62 if self.clock.seconds() >= self.back_at else -1


class _NamedAnew:
    """Gives run, tokens and requests names that do not change."""

    on = rows = True
    dropped = 0

    def __init__(self, tap: TeachingTap) -> None:
        self._tap = tap
        self._names: dict[str, dict[str, str]] = {"token": {}, "request": {}}

    def begin(self, run_id: str, source_id: str) -> None:
        del run_id
        self._tap.begin("run-1", source_id)

    def emit(self, told: Told) -> None:
        self._tap.emit(_Renamed(told, self))

    def rename(self, event: Event) -> Event:
        own = {item.name: getattr(event, item.name) for item in fields(event)}
        new: dict[str, Any] = {}
        if own.get("token"):
            new["token"] = self._name("token", own["token"], 1)
        if own.get("request_id"):
            new["request_id"] = self._name("request", own["request_id"], FIRST_REQUEST)
        if own.get("dump_id"):
            request, _, table = own["dump_id"].partition("/")
            new["dump_id"] = f"{self._name('request', request, FIRST_REQUEST)}/{table}"
        return replace(event, **new) if new else event

    def _name(self, what: str, old: str, first: int) -> str:
        names = self._names[what]
        return names.setdefault(old, f"{what}-{first + len(names)}")


@dataclass(frozen=True, slots=True)
class _Renamed:
    told: Told
    names: _NamedAnew

    @property
    def count(self) -> int:
        return self.told.count

    @property
    def nbytes(self) -> int:
        return self.told.nbytes

    def events(self) -> Iterator[Event]:
        return map(self.names.rename, self.told.events())
