"""A consumer that writes down what it is told, checks the order of callbacks, and fails where a test wants it to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.client import Consumer, Event, Result, Window
from headrace.model.block import SystemEvent
from headrace.model.schema import TableSchema
from headrace.wire.place import Place

__all__ = ["Grammar", "Recorder", "Told", "told_of"]

Told = tuple[int, int, str, str, tuple[tuple[str, Any], ...]]
"""scn, ord, operation or kind, table, cells: one event of a window."""


def told_of(event: Event | SystemEvent) -> Told:
    """Return an event as a comparable value."""
    if isinstance(event, SystemEvent):
        return event.scn, event.ord, event.kind.value, str(event.table), ()
    cells = tuple(sorted(event.row.items()))
    return event.scn, event.ord, event.op, str(event.table), cells


class Grammar:
    """Accepts ``start (window (source (event)*)* | checkpoint | rollback)* stop`` and nothing else."""

    def __init__(self) -> None:
        self.state = "new"
        self.scn = 0
        self.table = ""

    def on(self, name: str, argument: Any = None) -> None:
        """Take the next callback.

        Raises:
            AssertionError: it may not come here.
        """
        before = self.state
        if name == "on_start":
            assert before == "new"
            self.state = "idle"
        elif name == "on_start_window":
            assert before == "idle"
            assert argument.scn > self.scn, f"{argument.scn} comes after {self.scn}"
            self.state, self.scn = "window", argument.scn
        elif name == "on_start_source":
            assert before == "window"
            self.state, self.table = "source", str(argument.table)
        elif name in ("on_data_event", "on_data_batch"):
            assert before == "source"
            assert str(argument.table) == self.table
        elif name == "on_end_source":
            assert before == "source"
            assert str(argument.table) == self.table
            self.state = "window"
        elif name == "on_system_event":
            assert before == "window"
            assert argument.scn <= self.scn
        elif name == "on_end_window":
            assert before == "window"
            assert argument.scn == self.scn
            self.state = "idle"
        elif name == "on_checkpoint":
            assert before in ("idle", "window")
            assert argument.whole == (before == "idle")
        elif name == "on_rollback":
            assert before != "new"
            self.state, self.scn = "idle", argument.after_scn
        elif name == "on_error":
            assert before != "new"
        elif name == "on_stop":
            assert before != "new"
            self.state = "over"
        else:
            raise AssertionError(name)


class Recorder(Consumer):
    """Keeps what it was told since the last checkpoint apart from what it may count on.

    Args:
        fail: called with the callback's name and its number, from 1 over all callbacks; may raise or return a result.

    Attributes:
        log: every callback's name and argument.
        held: events up to the last checkpoint.
        open: events behind it.
        windows: SCNs of those that ended, in order, those that came again too.
        deliveries: data events, those that came again too.
    """

    def __init__(self, fail: Callable[[str, int], Result | None] | None = None) -> None:
        self.grammar = Grammar()
        self.log: list[tuple[str, Any]] = []
        self.held: list[Told] = []
        self.open: list[Told] = []
        self.windows: list[int] = []
        self.rollbacks = 0
        self.checkpoints: list[Place] = []
        self.errors: list[Exception] = []
        self.deliveries = 0
        self._fail = fail

    @property
    def told(self) -> list[Told]:
        """Every event, those that were rolled back left out."""
        return self.held + self.open

    def _on(self, name: str, argument: Any = None) -> Result | None:
        self.grammar.on(name, argument)
        self.log.append((name, argument))
        return self._fail(name, len(self.log)) if self._fail else None

    def on_start(self) -> Result | None:
        return self._on("on_start")

    def on_stop(self) -> Result | None:
        return self._on("on_stop")

    def on_start_window(self, window: Window) -> Result | None:
        return self._on("on_start_window", window)

    def on_start_source(self, table: TableSchema) -> Result | None:
        return self._on("on_start_source", table)

    def on_data_event(self, event: Event) -> Result | None:
        self.open.append(told_of(event))
        self.deliveries += 1
        return self._on("on_data_event", event)

    def on_system_event(self, event: SystemEvent) -> Result | None:
        self.open.append(told_of(event))
        return self._on("on_system_event", event)

    def on_end_source(self, table: TableSchema) -> Result | None:
        return self._on("on_end_source", table)

    def on_end_window(self, window: Window) -> Result | None:
        self.windows.append(window.scn)
        return self._on("on_end_window", window)

    def on_checkpoint(self, place: Place) -> Result | None:
        answer = self._on("on_checkpoint", place)
        if answer is None:
            self.held += self.open
            self.open = []
            self.checkpoints.append(place)
        return answer

    def on_rollback(self, place: Place) -> Result | None:
        self.rollbacks += 1
        self.held = [told for told in self.held if Place(*told[:2]) <= place]
        self.open = []
        return self._on("on_rollback", place)

    def on_error(self, error: Exception) -> Result | None:
        self.errors.append(error)
        return self._on("on_error", error)
