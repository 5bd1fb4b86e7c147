"""Pieces of windows into callbacks, and answers into what happens next.

Knows a consumer and its checkpoints, nothing of relays. What a callback says or raises comes out as a named error;
who drives this decides between rolling back and stopping.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from headrace.client.checkpoints import Checkpoints
from headrace.client.consumer import Consumer, Event, Result, Window
from headrace.client.errors import BudgetExceeded, CallbackFailed, ConsumerRefused, FatalResult
from headrace.client.rows import RowSlice
from headrace.client.settings import Settings
from headrace.client.together import Turns
from headrace.client.windows import Piece
from headrace.client.workers import Workers
from headrace.errors import HeadraceError
from headrace.wire.place import Place

__all__ = ["Dispatcher"]

_log = logging.getLogger(__name__)

_NAN = "NaN"
"""Stands for every NaN of a key."""


class Dispatcher:
    """Calls one consumer. Used from one thread.

    Args:
        consumer: called.
        checkpoints: where its place is kept.
        settings: how often that is, and how long a callback may take.
        place: where the consumer stands.
        clock: monotonic seconds.
        turns: shared with others whose callbacks must not overlap with these; None where there are no others.

    Attributes:
        place: behind everything that was delivered.
        stored: the last checkpoint as far as this object knows.
        careful_to: up to there each window has a checkpoint of its own, so that the one that fails is known.
        windows: delivered to their end.
        rows: delivered.
    """

    def __init__(
        self,
        consumer: Consumer,
        checkpoints: Checkpoints,
        settings: Settings,
        place: Place,
        clock: Callable[[], float] = time.monotonic,
        turns: Turns | None = None,
    ) -> None:
        self._turns = turns
        self._callbacks = _callbacks(consumer)
        self._checkpoints = checkpoints
        self._settings = settings
        self._clock = clock
        self._takes_batches = "on_data_batch" in self._callbacks
        self._takes_checkpoints = "on_checkpoint" in self._callbacks
        spreads = settings.workers > 1 and not consumer.in_order
        self._workers = Workers(settings.workers) if spreads else None
        self._open: Window | None = None
        self._windows_since = 0
        self._rows_since = 0
        self._skipped = False
        self._stored_at = clock()
        self._last_window = place
        self.place = self.stored = place
        self.careful_to = Place(-1)
        self.windows = 0
        self.rows = 0

    @property
    def careful(self) -> bool:
        """Whether the next window has a checkpoint of its own, however rare they are."""
        return self.place < self.careful_to

    def start(self) -> None:
        """Tell the consumer that it begins."""
        self._call("on_start", self.place)

    def stop(self) -> None:
        """Tell the consumer that it ends."""
        if self._workers is not None:
            self._workers.close()
        self._close()
        self._tell("on_stop")

    def error(self, error: Exception) -> None:
        """Tell the consumer why it is suspended or ends."""
        self._tell("on_error", error)

    def deliver(self, piece: Piece) -> None:
        """Tell a piece of a window.

        Raises:
            CallbackFailed: a callback failed.
            FatalResult: a callback wants an end.
            Unconvertible: a row cannot be what was asked for.
            CheckpointUnusable: the place cannot be kept.
        """
        window, place = piece.window, piece.place
        if self._open is None:
            # Until its end, or until it is given up: nobody else's window comes in between.
            if self._turns is not None:
                self._turns.take(self)
            self._open = window
            if "on_start_window" in self._callbacks:
                self._call("on_start_window", place, window)
        for part in piece.parts:
            if isinstance(part, RowSlice):
                self._source(part, place)
            else:
                self._settle()
                self._call("on_system_event", place, part)
        self.place = place
        if not piece.ends:
            self._checkpoint_inside()
            return
        if self._workers is not None and not self._settings.across_windows:
            self._settle()
        answer = self._call("on_end_window", place, window)
        self._close()
        self._last_window = place
        self.windows += 1
        self._windows_since += window.transactions
        self._skipped = answer is Result.SKIP_CHECKPOINT
        due = self._windows_since >= self._settings.checkpoint_every or place <= self.careful_to
        if answer is Result.CHECKPOINT or (due and not self._skipped):
            self.checkpoint()

    def cover(self, place: Place) -> None:
        """Take note that there is nothing more up to ``place``; remember it now and then.

        Raises:
            CallbackFailed: as `deliver`.
            CheckpointUnusable: likewise.
        """
        if self._open is not None or not place.whole or place < self.place:
            return
        self.place = place
        moved = self.place > self.stored
        if moved and self._clock() - self._stored_at >= self._settings.idle_checkpoint_s:
            self._stored_at = self._clock()
            if self._may_be_idle():
                self.checkpoint()

    def checkpoint(self) -> None:
        """Offer the place to the consumer, and store it unless it is refused.

        Raises:
            CallbackFailed: as `deliver`.
            CheckpointUnusable: it cannot be stored.
        """
        if self._workers is not None:
            self._settle()
        if (
            self._takes_checkpoints
            and self._call("on_checkpoint", self.place, self.place) is Result.SKIP_CHECKPOINT
        ):
            return
        self._checkpoints.store(self.place)
        self._remembered(self.place)

    def pass_over(self, piece: Piece) -> None:
        """Take note that somebody else took a piece; remember that behind the last one of its window.

        Not while the consumer keeps windows back: they would be taken for processed.
        """
        self.place = piece.place
        if piece.ends and self._may_be_idle():
            self.checkpoint()

    def give_way(self) -> None:
        """Let others call while this one waits for another try or a person: its open window is given up."""
        self._close()

    def rollback(self, told: Place, place: Place) -> None:
        """Tell the consumer that everything behind ``told`` comes again, and stand at ``place``, which may be later.

        Raises:
            CallbackFailed: as `deliver`.
        """
        if self._workers is not None:
            self._workers.drop()
        self._close()
        self.place = self._last_window = place
        self._remembered(place)
        self._call("on_rollback", told, told)

    def finish(self) -> None:
        """Remember what was delivered and not yet stored, unless the consumer keeps that back.

        Raises:
            CallbackFailed: as `deliver`.
            CheckpointUnusable: likewise.
        """
        if self._open is None and self.place > self.stored and self._may_be_idle():
            self.checkpoint()

    def _close(self) -> None:
        """No window is open any more."""
        if self._open is not None:
            self._open = None
            if self._turns is not None:
                self._turns.give(self)

    def _source(self, part: RowSlice, place: Place) -> None:
        schema, count = part.rows.schema, part.stop - part.start
        if "on_start_source" in self._callbacks:
            self._call("on_start_source", place, schema)
        if self._takes_batches:
            self._call("on_data_batch", place, part.batch())
        elif self._workers is None:
            for event in part.events():
                self._call("on_data_event", event.place, event)
        else:
            self._spread(part, self._workers)
        if self._workers is not None and not self._settings.across_windows:
            self._settle()
        if "on_end_source" in self._callbacks:
            self._call("on_end_source", place, schema)
        self.rows += count
        self._rows_since += count

    def _spread(self, part: RowSlice, workers: Workers) -> None:
        """Let workers take the events, each key always the same one."""
        names = part.schema.key
        for event in part.events():
            before, key = event.before, _comparable(event.key)
            if before is not None and _comparable(before.get(name) for name in names) != key:
                # It belongs behind the events of both keys, and ahead of those that follow. So does one whose key is
                # not among the columns that were asked for: nobody knows whether it moved.
                workers.settle()
                self._one_event(event)
            else:
                workers.submit((event.table, key), self._one_event, event)

    def _one_event(self, event: Event) -> None:
        self._call("on_data_event", event.place, event)

    def _settle(self) -> None:
        """Wait until the workers have done everything; raise what went wrong with any of them."""
        if self._workers is not None:
            self._workers.settle()

    def _checkpoint_inside(self) -> None:
        rows = self._settings.checkpoint_rows
        # Whoever kept the last window back, and is not asked, may keep this one back too.
        keeps_back = self._skipped and not self._takes_checkpoints
        if rows is not None and self._rows_since >= rows and not keeps_back:
            self.checkpoint()

    def _may_be_idle(self) -> bool:
        """Whether a place that moved without windows may be stored: nothing before it still waits in the consumer."""
        if not self._skipped or self._takes_checkpoints:
            return True
        stored = self._checkpoints.load()
        return stored is not None and stored >= self._last_window

    def _remembered(self, place: Place) -> None:
        self.stored = place
        self._windows_since = self._rows_since = 0
        self._skipped = False
        self._stored_at = self._clock()

    def _tell(self, name: str, *arguments: Any) -> None:
        """Call what can change nothing any more."""
        try:
            self._call(name, self.place, *arguments)
        except CallbackFailed as error:
            _log.warning("%s", error)

    def _call(self, name: str, place: Place, *arguments: Any) -> Result:
        callback = self._callbacks.get(name)
        if callback is None:
            return Result.SUCCESS
        if self._turns is not None:
            self._turns.take(self)
        began = self._clock()
        try:
            answer = callback(*arguments)
        except HeadraceError as error:
            failed = CallbackFailed(
                name, place, f"it raised {type(error).__name__}: {error.message.rstrip('.')}"
            )
            failed.next_step = error.next_step or failed.next_step
            raise failed from error
        except Exception as error:
            # The exception's own text may quote values, and stays with the exception.
            raise CallbackFailed(name, place, f"it raised {type(error).__name__}") from error
        finally:
            took = self._clock() - began
            if self._turns is not None:
                self._turns.give(self)
        if answer is Result.ERROR_FATAL:
            raise FatalResult(name, place, "it said ERROR_FATAL")
        if answer is Result.ERROR:
            raise ConsumerRefused(name, place, "it said ERROR")
        if took > self._settings.budget_s:
            what = f"it took {took:.3f} s of {self._settings.budget_s:g}"
            raise BudgetExceeded(name, place, what)
        return answer or Result.SUCCESS


def _comparable(key: Iterable[Any]) -> tuple[Any, ...]:
    """Return a key whose cells are equal, and hash alike, where databases say so: a NaN is equal to no other."""
    return tuple(_NAN if cell != cell else cell for cell in key)


def _callbacks(consumer: Consumer) -> dict[str, Callable[..., Result | None]]:
    """Return what a consumer has of its own; the others need no call."""
    found = {name: getattr(consumer, name) for name in vars(Consumer) if name.startswith("on_")}
    return {
        name: callback
        for name, callback in found.items()
        if getattr(callback, "__func__", None) is not getattr(Consumer, name)
    }
