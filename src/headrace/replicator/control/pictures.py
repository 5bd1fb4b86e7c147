"""How replicators stand, for many who ask: each is looked at now and then, and answers are given from memory.

In: replicators as they are noted, and what their parts left on disk. Out: pictures with their age. A thread looks at
one after the other and takes no more than a fifth of one core; whoever wants a newer picture of one looks at that one.
A target on the network may not answer for as long as its requests may take. So looks are taken beside who asks, one at
a time of each replicator: nobody waits for long, and one that cannot be seen hides no other.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

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
_LOOKERS = 8
"""Looks that are taken at the same time; what they do alone, Python does for one at a time."""
_PATIENCE_S = 5.0
"""From the beginning of a look, for who asks for it; behind that everybody is told at once that it takes long."""
_TURN_PATIENCE_S = 1.0
_STALE_S = 60.0
"""A picture that is older is shown to nobody in place of a new one."""

_Key = tuple[int, int, State]


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


@dataclass(frozen=True, slots=True)
class _Look:
    """A look under way: at what, since when, and what comes of it."""

    key: _Key
    began: float
    found: Future[Seen]


@dataclass(slots=True)
class _Place:
    """One replicator: its observer, as long as its configuration stays the same, and what it last saw.

    The observer is the look's while there is one; the rest is for who has the lock.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    key: _Key | None = None
    observer: Observer | None = None
    seen: Seen | None = None
    look: _Look | None = None


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
        self._lookers = ThreadPoolExecutor(_LOOKERS, thread_name_prefix="look")
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
        self._lookers.shutdown(cancel_futures=True)
        for place in self._places.values():
            self._forget(place)

    def last(self, row: Deployed) -> Seen | None:
        """Return what was last seen of a replicator, None when nobody has looked yet."""
        place = self._places.get(row.number)
        return place.seen if place is not None else None

    def seen(self, row: Deployed, age_s: float = 1.0, patience_s: float = _PATIENCE_S) -> Seen:
        """Return a picture that is not older than ``age_s``; the last one, with an error, where a look takes too long.

        Args:
            row: of which replicator.
            age_s: a picture that is younger will do.
            patience_s: longest time that a look may have taken for who waits for it.
        """
        place = self._places.setdefault(row.number, _Place())
        key = (row.generation, row.revision, row.state)
        while True:
            with place.lock:
                now, seen = time.monotonic(), place.seen
                if place.look is None:
                    if place.key == key and seen is not None and now - seen.at_s <= age_s:
                        return seen
                    found = self._lookers.submit(self._looked, place, row, key)
                    place.look = _Look(key, now, found)
                look = place.look
            try:
                found_now = look.found.result(max(0.0, look.began + patience_s - now))
            except TimeoutError:
                return _late(look, seen if place.key == key else None)
            if look.key == key:
                return found_now

    def _looked(self, place: _Place, row: Deployed, key: _Key) -> Seen:
        try:
            if place.key != key:
                self._forget(place)
            seen = self._look(place, row)
            with place.lock:
                place.key, place.seen = key, seen
            return seen
        finally:
            with place.lock:
                place.look = None

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
                self._leave(self._places.pop(gone))
            for row in rows:
                begun = time.monotonic()
                age_s = self._interval_s if _moves(row) else 30 * self._interval_s
                self.seen(row, age_s, _TURN_PATIENCE_S)
                took = time.monotonic() - begun
                # Where it took longer, somebody else was waited for, and no core was taken.
                if self._stop.wait(_SHARE * took if took < _TURN_PATIENCE_S else 0.0):
                    return

    def _leave(self, place: _Place) -> None:
        """Forget a place, as soon as nobody looks."""
        with place.lock:
            look = place.look
        if look is None:
            self._forget(place)
        else:
            look.found.add_done_callback(lambda _: self._forget(place))


def _late(look: _Look, last: Seen | None) -> Seen:
    """Return what is told where a look takes too long: what was seen last, unless that is too old."""
    now = time.monotonic()
    error = f"a look at it has not ended for {now - look.began:.0f} s; its target, or its disk, gives no answer"
    if last is None or now - last.at_s > _STALE_S:
        return Seen(None, now, time.time_ns() // 1_000_000, error)
    return replace(last, error=error)


def _moves(row: Deployed) -> bool:
    return row.state in (State.STARTING, State.RUNNING, State.PAUSED, State.STOPPING)
