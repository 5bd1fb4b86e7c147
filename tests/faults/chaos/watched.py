"""Consumers that check and write down what they are told, whatever does the work behind them."""

from __future__ import annotations

from typing import Any

from headrace.client import Batch, Consumer, Event, Result
from headrace.model.block import SystemEvent
from tests.client.recording import Grammar
from tests.faults.chaos.told import Lines, Row, line_of, lines_of

__all__ = ["Watched", "WatchedBatches"]


class Watched(Consumer):
    """Hands every callback on to another consumer.

    What is out of order becomes a line; so does each window's changes, before the other one hears of its end.

    Args:
        lines: where to write.
        consumer: that works.
    """

    def __init__(self, lines: Lines, consumer: Consumer) -> None:
        self._lines = lines
        self._consumer = consumer
        self._grammar = Grammar()
        self._held: list[Row] = []

    def _on(self, name: str, *arguments: Any) -> Result | None:
        try:
            self._grammar.on(name, *arguments)
        except AssertionError as error:
            self._lines.write({"grammar": f"{name}: {error}"})
        answer: Result | None = getattr(self._consumer, name)(*arguments)
        return answer

    def on_start(self) -> Result | None:
        self._lines.write({"begin": "start"})
        return self._on("on_start")

    def on_stop(self) -> Result | None:
        return self._on("on_stop")

    def on_start_window(self, window: Any) -> Result | None:
        self._held = []
        return self._on("on_start_window", window)

    def on_start_source(self, table: Any) -> Result | None:
        return self._on("on_start_source", table)

    def on_data_event(self, event: Event) -> Result | None:
        self._held.append(line_of(event))
        return self._on("on_data_event", event)

    def on_end_source(self, table: Any) -> Result | None:
        return self._on("on_end_source", table)

    def on_system_event(self, event: SystemEvent) -> Result | None:
        return self._on("on_system_event", event)

    def on_end_window(self, window: Any) -> Result | None:
        self._lines.write(*self._held)
        return self._on("on_end_window", window)

    def on_checkpoint(self, place: Any) -> Result | None:
        return self._on("on_checkpoint", place)

    def on_rollback(self, place: Any) -> Result | None:
        self._lines.write({"begin": "rollback"})
        return self._on("on_rollback", place)

    def on_error(self, error: Exception) -> Result | None:
        return self._on("on_error", error)


class WatchedBatches(Watched):
    """The same for a consumer that takes whole batches."""

    def on_data_batch(self, batch: Batch) -> Result | None:
        self._held += lines_of(batch)
        return self._on("on_data_batch", batch)
