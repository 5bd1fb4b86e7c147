"""Where events go: one small port, and the tap that is off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from headrace.observe.tap.events import Event

__all__ = ["NO_TAP", "Later", "Tap", "Told"]


class Told(Protocol):
    """One or more events, made when they are written and not before."""

    @property
    def count(self) -> int:
        """How many events there are; their numbers are given out at once."""
        ...

    @property
    def nbytes(self) -> int:
        """About how much is held until they are written."""
        ...

    def events(self) -> Iterable[Event]:
        """Make the events; called once, perhaps in another thread."""
        ...


@dataclass(frozen=True, slots=True)
class Later:
    """Events that are made from columns when there is time for it.

    Attributes:
        count: how many ``make`` gives.
        nbytes: of the columns that it holds.
        make: yields the events.
    """

    count: int
    nbytes: int
    make: Callable[[], Iterator[Event]]

    def events(self) -> Iterator[Event]:
        """Make the events."""
        return self.make()


class Tap(Protocol):
    """Takes events. May be called from several threads."""

    @property
    def on(self) -> bool:
        """Whether anybody listens; whoever tells looks here first and makes nothing in vain."""
        ...

    @property
    def rows(self) -> bool:
        """Whether single rows are wanted too, and not only the steps."""
        ...

    @property
    def dropped(self) -> int:
        """Events that were lost so far."""
        ...

    def begin(self, run_id: str, source_id: str) -> None:
        """Say whose events follow; numbers begin anew."""
        ...

    def emit(self, told: Told) -> None:
        """Take events. Never raises; blocks only where that is its purpose."""
        ...


class _Off:
    """Listens to nobody."""

    on = False
    rows = False
    dropped = 0

    def begin(self, run_id: str, source_id: str) -> None:
        """Do nothing."""

    def emit(self, told: Told) -> None:
        """Do nothing."""


NO_TAP: Tap = _Off()
"""The tap that is off."""
