"""The consumer behind `headrace tail`: writes what it is told in the order of the stream, counts it, ends in time."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

from rich.table import Table

from headrace.cli.output import notes
from headrace.cli.tail_forms import Form
from headrace.client import Consumer, Event, Result, Window
from headrace.errors import TargetUnwritable
from headrace.model.block import SystemEvent
from headrace.plural import counted
from headrace.wire.place import Place

__all__ = ["Seen", "TailConsumer", "Verbosity"]


class Verbosity(IntEnum):
    """How much is told beside changes and system events."""

    EVENT = 0
    WINDOW = 1
    """Also where each window ends."""
    LIFECYCLE = 2
    """Also what happens to the subscription."""


@dataclass(slots=True)
class Seen:
    """What was written.

    Attributes:
        windows: that ended.
        changes: of the system stream too.
        first_scn: of the first window; 0 before there is one.
        last_scn: of the last one.
        last_commit_us: its commit time, microseconds since 1970 UTC.
        by_table: changes by table and operation.
        began: when, monotonic seconds.
    """

    windows: int = 0
    changes: int = 0
    first_scn: int = 0
    last_scn: int = 0
    last_commit_us: int = 0
    by_table: Counter[tuple[str, str]] = field(default_factory=Counter)
    began: float = field(default_factory=time.monotonic)

    def line(self) -> str:
        """Return one line about it."""
        seconds = max(time.monotonic() - self.began, 1e-9)
        said = f"{counted(self.changes, 'change')} in {counted(self.windows, 'window')}"
        if self.changes:
            behind = max(0.0, time.time() - self.last_commit_us / 1e6)
            said += f" · SCN {self.first_scn} to {self.last_scn} · {self.changes / seconds:,.0f}/s"
            said += f" · the last one committed {behind:,.1f} s ago"
        return said

    def table(self) -> Table:
        """Return how many changes of each kind each table had."""
        shown = Table(box=None, pad_edge=False)
        for name in ("table", "change"):
            shown.add_column(name, no_wrap=True)
        shown.add_column("count", justify="right")
        for (table, op), count in sorted(self.by_table.items()):
            shown.add_row(table, op, f"{count:,}")
        return shown


class TailConsumer(Consumer):
    """Writes changes.

    A piece of a window is put in order before it is written: callbacks give the changes of one table together.

    Args:
        form: writes.
        verbosity: how much beside the changes.
        most: changes after which it ends; None for no end.
        stop: ends the subscription.

    Attributes:
        seen: so far.
        place: behind the last change that was written, once ``most`` were: to be stored instead of the place of the
            subscription, which may have been told more.
    """

    def __init__(
        self, form: Form, verbosity: Verbosity, most: int | None, stop: Callable[[], object]
    ) -> None:
        self._form = form
        self._verbosity = verbosity
        self._most = most
        self._stop = stop
        self._window: Window | None = None
        self._held: list[Event | SystemEvent] = []
        self._over = False
        self.seen = Seen()
        self.place: Place | None = None

    def on_start(self) -> None:
        """Say so."""
        self._tell("started")

    def on_stop(self) -> None:
        """Say so."""
        self._tell("ended")

    def on_start_window(self, window: Window) -> None:
        """Remember it for the form."""
        self._window = window

    def on_data_event(self, event: Event) -> None:
        """Hold the change until its piece of the window is there."""
        if not self._over:
            self._held.append(event)

    def on_system_event(self, event: SystemEvent) -> None:
        """Hold the event, likewise."""
        if not self._over:
            self._held.append(event)

    def on_end_window(self, window: Window) -> Result | None:
        """Write what is held."""
        if not self._over:
            self._write(window.place)
            if self.place in (None, window.place):
                self.seen.windows += 1
                if self._verbosity >= Verbosity.WINDOW:
                    self._out(lambda: self._form.end(window))
            self._flush()
        return Result.SKIP_CHECKPOINT if self._over else None

    def on_checkpoint(self, place: Place) -> Result | None:
        """Write what is held of a window that goes on; refuse when more was told than written."""
        if not self._over:
            self._write(place)
            self._flush()
        if self._over:
            return Result.SKIP_CHECKPOINT
        self._tell(f"checkpoint {place}")
        return None

    def on_rollback(self, place: Place) -> None:
        """Forget what was not written."""
        self._held.clear()
        self._tell(f"back to {place}")

    def _write(self, behind: Place) -> None:
        """Write what is held, ``behind`` which the consumer then stands; end when it is enough."""
        if (window := self._window) is None:
            return
        self._held.sort(key=lambda event: (event.scn, event.ord))
        for number, event in enumerate(self._held, 1):
            self._one(window, event)
            if self.seen.changes == self._most:
                whole = number == len(self._held)
                self._end(behind if whole else Place(event.scn, event.ord))
            if self._over:
                break
        self._held.clear()

    def _one(self, window: Window, event: Event | SystemEvent) -> None:
        seen = self.seen
        if isinstance(event, Event):
            seen.by_table[str(event.table), event.op] += 1
            self._out(lambda: self._form.change(window, event))
        else:
            seen.by_table[str(event.table), event.kind.value] += 1
            self._out(lambda: self._form.system(window, event))
        seen.changes += 1
        seen.first_scn = seen.first_scn or event.scn
        seen.last_scn, seen.last_commit_us = event.scn, window.commit_us

    def _end(self, place: Place | None) -> None:
        self._over, self.place = True, place
        self._stop()

    def _flush(self) -> None:
        self._out(sys.stdout.flush)

    def _out(self, write: Callable[[], object]) -> None:
        try:
            write()
        except BrokenPipeError:
            # Whoever read us has enough. What Python still wants to write at its end goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self._end(None)
        except OSError as error:
            raise TargetUnwritable(
                f"The standard output cannot be written: {error.strerror or type(error).__name__}.",
                next_step="make room where it goes, or let it go elsewhere; nothing behind it was remembered.",
            ) from error

    def _tell(self, what: str) -> None:
        if self._verbosity >= Verbosity.LIFECYCLE:
            notes.print(what)
