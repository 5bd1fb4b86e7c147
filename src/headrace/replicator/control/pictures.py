"""How replicators stand, for many who ask: each is looked at now and then, and answers are given from memory.

In: replicators as they are noted, and what their parts left on disk. Out: pictures with their age. A thread looks at
one after the other and takes no more than a fifth of one core; whoever wants a newer picture of one looks at that one.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headrace.errors import HeadraceError
from headrace.replicator.control.complaints import Complaints
from headrace.replicator.control.folders import Folders
from headrace.replicator.control.lifecycle import State
from headrace.replicator.control.records import Deployed
from headrace.replicator.picture import Observer, Picture

__all__ = ["Pictures", "Seen"]

_log = logging.getLogger(__name__)

_SHARE = 4.0
"""How many times as long as it has looked the thread rests."""
_MOST_OPEN = 64
"""Observers that are kept open; each holds a few files."""


@dataclass(frozen=True, slots=True)
class Seen:
    """How a replicator stood when it was last looked at.

    Attributes:
        picture: of it, None where nobody could look.
        at_s: when, monotonic seconds.
        at_ms: when, milliseconds since 1970 UTC.
        error: why nobody could look; empty otherwise.
    """

    picture: Picture | None
    at_s: float
    at_ms: int
    error: str = ""


@dataclass(slots=True)
class _Place:
    """One replicator: its observer, as long as its configuration stays the same, and what it last saw."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    key: tuple[int, int, State] | None = None
    observer: Observer | None = None
    seen: Seen | None = None


class Pictures:
    """Looks at replicators; used from any thread.

    Args:
        folders: where they live.
        replicators: gives them as they are noted.
        interval_s: a picture in the list is renewed so often, where that takes no more than a share of the time.
    """

    def __init__(
        self,
        folders: Folders,
        replicators: Callable[[], Sequence[Deployed]],
        interval_s: float = 2.0,
    ) -> None:
        self._folders = folders
        self._replicators = replicators
        self._interval_s = interval_s
        self._places: dict[int, _Place] = {}
        self._complaints = Complaints()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._turn, name="pictures", daemon=True)

    def begin(self) -> None:
        """Look around until `close`."""
        self._thread.start()

    def close(self) -> None:
        """End, and release what is open."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        for place in self._places.values():
            self._forget(place)

    def last(self, row: Deployed) -> Seen | None:
        """Return what was last seen of a replicator, None when nobody has looked yet."""
        place = self._places.get(row.number)
        return place.seen if place is not None else None

    def seen(self, row: Deployed, age_s: float = 1.0) -> Seen:
        """Return a picture that is not older than ``age_s``."""
        place = self._places.setdefault(row.number, _Place())
        with place.lock:
            key = (row.generation, row.revision, row.state)
            if place.key != key:
                self._forget(place)
                place.key, place.seen = key, None
            if place.seen is None or time.monotonic() - place.seen.at_s > age_s:
                place.seen = self._look(place, row)
            return place.seen

    def _look(self, place: _Place, row: Deployed) -> Seen:
        picture, error = None, ""
        folder = self._folders.of(row)
        try:
            if place.observer is None:
                place.observer = Observer(folder.config(row))
            picture = place.observer.look()
        except HeadraceError as caught:
            self._forget(place)
            error = caught.message
        except OSError as caught:
            self._forget(place)
            error = f"{type(caught).__name__} while looking at it"
        except Exception as caught:  # noqa: BLE001 - the others are looked at all the same
            self._forget(place)
            error = f"{type(caught).__name__} while looking at it"
            if place.seen is None or place.seen.error != error:
                frames = "".join(traceback.format_tb(caught.__traceback__))
                _log.error("%s: %s\n%s", row.full_name, type(caught).__name__, frames)
        if sum(other.observer is not None for other in list(self._places.values())) > _MOST_OPEN:
            self._forget(place)
        return Seen(picture, time.monotonic(), time.time_ns() // 1_000_000, error)

    @staticmethod
    def _forget(place: _Place) -> None:
        if place.observer is not None:
            with contextlib.suppress(HeadraceError):
                place.observer.close()
        place.observer = None

    def _turn(self) -> None:
        while not self._stop.wait(self._interval_s / 4):
            try:
                rows = self._replicators()
            except HeadraceError as error:
                # The database is away; whoever asks for the list is told.
                self._complaints.hear(error)
                continue
            self._complaints.forget()
            for gone in self._places.keys() - {row.number for row in rows}:
                self._forget(self._places.pop(gone))
            for row in rows:
                begun = time.monotonic()
                self.seen(row, self._interval_s if _moves(row) else 30 * self._interval_s)
                if self._stop.wait(_SHARE * (time.monotonic() - begun)):
                    return


def _moves(row: Deployed) -> bool:
    return row.state in (State.STARTING, State.RUNNING, State.PAUSED, State.STOPPING)
