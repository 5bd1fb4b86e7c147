"""A consumer in a process of its own, of one of three kinds; `test_chaos` kills and freezes it.

Each writes lines of JSON: one at its start, one per change, in the order in which it was told of them. What was
written outlives a kill, so the test sees every delivery, those too that come again.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from headrace.client import Backoff, Consumer, Event, HttpSettings, Settings, Subscription
from headrace.errors import HeadraceError
from headrace.model.block import SystemEvent
from headrace.outputs import NdjsonOutput
from tests.client.recording import Grammar

_SETTINGS = Settings(
    idle_checkpoint_s=0.2,
    patience_s=600.0,
    reconnect=Backoff(0.05, 1.5, 0.5),
    http=HttpSettings(connect_timeout_s=3.0, read_timeout_s=3.0),
)


class Lines:
    """Appends lines that the kernel holds when a call returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        # What a kill left unfinished ends here.
        self.write({"start": os.getpid()}, before=b"\n")

    def write(self, *values: dict[str, Any], before: bytes = b"") -> None:
        """Append values."""
        text = "".join(json.dumps(value) + "\n" for value in values)
        os.write(self._file, before + text.encode())


def _line(event: Event) -> dict[str, Any]:
    said = {"scn": event.scn, "ord": event.ord, "op": event.op, "row": dict(event.row)}
    return said if event.before is None else said | {"before": dict(event.before)}


class Strict(Consumer):
    """Checks the order of callbacks, and writes each window's changes before it ends."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._grammar = Grammar()
        self._held: list[dict[str, Any]] = []

    def _on(self, name: str, argument: Any = None) -> None:
        try:
            self._grammar.on(name, argument)
        except AssertionError as error:
            self._lines.write({"grammar": f"{name}: {error}"})

    def on_start(self) -> None:
        self._on("on_start")

    def on_stop(self) -> None:
        self._on("on_stop")

    def on_start_window(self, window: Any) -> None:
        self._on("on_start_window", window)

    def on_start_source(self, table: Any) -> None:
        self._on("on_start_source", table)

    def on_data_event(self, event: Event) -> None:
        self._on("on_data_event", event)
        self._held.append(_line(event))

    def on_end_source(self, table: Any) -> None:
        self._on("on_end_source", table)

    def on_system_event(self, event: SystemEvent) -> None:
        self._on("on_system_event", event)

    def on_end_window(self, window: Any) -> None:
        self._on("on_end_window", window)
        held, self._held = self._held, []
        self._lines.write(*held)

    def on_checkpoint(self, place: Any) -> None:
        self._on("on_checkpoint", place)

    def on_rollback(self, place: Any) -> None:
        self._on("on_rollback", place)
        self._held = []

    def on_error(self, error: Exception) -> None:
        self._on("on_error", error)


def main(kind: str, folder: Path, urls: list[str]) -> None:
    """Consume until killed."""
    place = folder / f"{kind}.place"
    if kind == "ndjson":
        Subscription(
            urls, "chaos", NdjsonOutput(folder / "ndjson.lines"), place, settings=_SETTINGS
        ).run()
        return
    lines = Lines(folder / f"{kind}.lines")
    if kind == "callbacks":
        Subscription(urls, "chaos", Strict(lines), place, settings=_SETTINGS).run()
        return
    while True:
        # Begun anew where no relay could go on: that is what iteration asks of its caller.
        with suppress(HeadraceError):
            subscription = Subscription(urls, "chaos", checkpoints=place, settings=_SETTINGS)
            for window in subscription.windows():
                lines.write(*(_line(event) for event in window if isinstance(event, Event)))
                window.done()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
