"""A subscription: one consumer, one source, a place in its stream, and what people do with it.

`Subscription.run` delivers until it is stopped. A failed callback means a rollback to the last checkpoint and the
same windows once more; when its retries are used up the subscription is suspended and waits for a person. The other
methods may be called from any thread.

Source: Databus, sections 3.3 and 3.4.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from headrace.client.checkpoints import Checkpoints, FileCheckpoints, NoCheckpoints
from headrace.client.consumer import Consumer
from headrace.client.control import Control
from headrace.client.dead_letters import DeadLetters
from headrace.client.delivery import LOOK_S, Delivery, OnLost
from headrace.client.dispatcher import Dispatcher
from headrace.client.errors import Suspended
from headrace.client.feed import Feed
from headrace.client.iterator import IteratedWindow, iterate
from headrace.client.relays import Relays
from headrace.client.schemas import Schemas
from headrace.client.settings import Settings
from headrace.client.shapes import shapes_of
from headrace.client.start import Start, resolve
from headrace.client.states import State, Status
from headrace.client.together import Turns
from headrace.client.transport import StreamRequest
from headrace.client.windows import Piece, Windows
from headrace.errors import ConfigError, HeadraceError, StateError
from headrace.wire.filters import parse_filter
from headrace.wire.place import Place

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["Subscription"]


class Subscription:
    """Delivers one source to one consumer.

    Args:
        relays: addresses, the preferred one first; a routing document of theirs replaces the list. ``file:///FOLDER``
            reads the folder of a change log on this machine in a relay's place.
        source: name of the source.
        consumer: is called; None for `windows`, which gives the same by iteration.
        checkpoints: where the place is kept; a path stands for a file, None for nowhere.
        filter: what to leave out at the relay, as the protocol has it.
        start: where to begin while there is no checkpoint.
        upto: end once everything up to this SCN was delivered.
        shapes: Arrow schema or pydantic model by table name: what the rows shall look like. Tables that are not named
            come as they are.
        on_lost: what to do when no relay holds the place any more: ``stop`` suspends; ``dump`` rolls the consumer
            back to place 0, asks for a dump and goes on behind the newest place of now; a function is called after
            that rollback and returns the place to go on from.
        on_suspended: ``wait`` for a person, or ``raise`` the error out of `run`.
        dead_letters: folder for windows that are skipped.
        settings: sizes, times and numbers.
        clock: monotonic seconds.
        rng: decides the jitter of pauses.

    Raises:
        ConfigError: one of them cannot be used.
        BadFilter: the filter does not read.
    """

    def __init__(
        self,
        relays: str | Sequence[str],
        source: str,
        consumer: Consumer | None = None,
        checkpoints: Checkpoints | Path | str | None = None,
        *,
        filter: Mapping[str, Any] | None = None,
        start: Start = "oldest",
        upto: int | None = None,
        shapes: Mapping[str, pa.Schema | type[BaseModel]] | None = None,
        on_lost: OnLost = "stop",
        on_suspended: Literal["wait", "raise"] = "wait",
        dead_letters: Path | str | None = None,
        settings: Settings | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self._settings = settings or Settings()
        self._settings.validate()
        self._rng = rng or random.Random()
        self._clock = clock
        self._control = Control()
        self._relays = Relays(
            [relays] if isinstance(relays, str) else relays,
            source,
            self._settings.http,
            max_block_bytes=self._settings.max_block_bytes,
            backoff=self._settings.reconnect,
            rng=self._rng,
        )
        self._source = source
        self._consumer = consumer or Consumer()
        self._checkpoints = _checkpoints(checkpoints)
        self._request = StreamRequest(
            source,
            upto=upto,
            filter=None if filter is None else dict(filter),
            pull=self._settings.pull,
            max_bytes=self._settings.pull_bytes,
            wait_ms=self._settings.pull_wait_ms,
        )
        self._start = start
        self._shapes = shapes_of(shapes or {})
        self._on_lost = on_lost
        self._on_suspended = on_suspended
        self._dead_letters = None if dead_letters is None else DeadLetters(Path(dead_letters))
        self._schemas = Schemas(self._relays, source, self._pause_for_schemas)
        # Which columns a filter leaves is the filter's own rule.
        self._version_of = (
            self._schemas.get
            if filter is None
            else parse_filter(filter).bound(self._schemas.get).schema
        )
        self._turns: Turns | None = None
        self._running = threading.Lock()
        self._feed: Feed[Piece] | None = None
        self._dispatcher: Dispatcher | None = None
        self._delivery: Delivery | None = None
        self._connections = self._peak_bytes = 0

    # -- from any thread --------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        """What the subscription does now."""
        feed, dispatcher, delivery = self._feed, self._dispatcher, self._delivery
        connections, held, peak = (0, 0, 0) if feed is None else feed.counts
        return Status(
            self._control.state,
            dispatcher.place if dispatcher else None,
            dispatcher.stored if dispatcher else None,
            self._control.error,
            windows=dispatcher.windows if dispatcher else 0,
            rows=dispatcher.rows if dispatcher else 0,
            rollbacks=delivery.rollbacks if delivery else 0,
            connections=self._connections + connections,
            held_bytes=held,
            peak_bytes=max(peak, self._peak_bytes),
            last_commit_us=delivery.last_commit_us if delivery else 0,
            failed_scn=delivery.poison[1] if delivery and delivery.poison else None,
        )

    def pause(self) -> None:
        """Deliver nothing more until `resume`; what is being delivered comes to the end of its piece."""
        self._control.pause()
        self._wake()

    def resume(self) -> None:
        """Go on after a pause, or after a suspension from the last checkpoint, with fresh retries."""
        self._control.resume()

    def rewind(self, to: Start | int) -> None:
        """Deliver again from a place, an SCN or a time on; the consumer is rolled back there first."""
        self._control.rewind(Place(to) if isinstance(to, int) else to)
        self._wake()

    def restart(self) -> None:
        """Deliver everything that the relay holds once more, as to a new consumer."""
        self._control.rewind("oldest")
        self._wake()

    def skip_window(self) -> None:
        """Put the window that suspended the subscription aside, into the folder of dead letters, and go on behind it.

        Raises:
            ConfigError: there is no such folder.
            Suspended: no window is in the way.
        """
        if self._dead_letters is None:
            raise ConfigError(
                "A window cannot be skipped without a place to put it.",
                next_step="name a folder in dead_letters=.",
            )
        delivery = self._delivery
        suspended = self._control.state is State.SUSPENDED_ON_ERROR
        if not suspended or delivery is None or delivery.poison is None:
            raise Suspended(
                "No window is in the way of this subscription.",
                next_step="wait until a window suspends it; rewind it to pass others.",
            )
        delivery.skipped.append(delivery.poison)
        self._control.resume()

    def stop(self) -> None:
        """End `run` and `windows` soon; returns at once."""
        self._control.stop()
        self._wake()

    def take_turns(self, turns: Turns) -> None:
        """Call the consumer only when it is this subscription's turn; see `headrace.client.together.Together`."""
        self._turns = turns

    # -- delivery ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Deliver until somebody stops the subscription, or everything up to ``upto`` came.

        Raises:
            FatalResult: a callback wanted an end.
            HeadraceError: the place to begin cannot be found; or, with ``on_suspended="raise"``, what suspended it.
        """
        with self._alone():
            place = self._stand()
            if place is None:
                return
            dispatcher = self._dispatcher = Dispatcher(
                self._consumer, self._checkpoints, self._settings, place, self._clock, self._turns
            )
            delivery = self._delivery = Delivery(
                dispatcher,
                self._checkpoints,
                self._control,
                self._settings,
                fed=self._fed,
                resolve=self._resolve,
                dump=self._dump,
                begun_at=place,
                on_lost=self._on_lost,
                wait_for_people=self._on_suspended == "wait",
                dead_letters=self._dead_letters,
                rng=self._rng,
            )
            try:
                dispatcher.start()
                self._control.enter(State.STARTED)
                delivery.run(place)
            except Exception as error:
                self._control.error = error
                dispatcher.error(error)
                raise
            finally:
                dispatcher.stop()

    def windows(self) -> Generator[IteratedWindow, None, None]:
        """Yield windows as they come: the same events as callbacks get, one window after the other.

        ``window.done()`` remembers that a window was processed. Whoever begins anew begins behind the last such one.

        Raises:
            HeadraceError: no relay can go on; begin anew when it may be better.
        """
        with self._alone():
            place = self._stand()
            if place is None:
                return
            self._control.enter(State.STARTED)
            while True:
                with self._fed(place, True) as feed:
                    ended = yield from iterate(
                        feed,
                        self._checkpoints,
                        self._control,
                        look_s=LOOK_S,
                        idle_checkpoint_s=self._settings.idle_checkpoint_s,
                        clock=self._clock,
                    )
                to = self._control.taken_rewind()
                if ended or to is None or self._control.stopping:
                    return
                place = self._resolve(to)
                self._checkpoints.store(place)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._running.acquire(blocking=False):
            raise StateError(
                "This subscription is delivering already.",
                next_step="make another one; two of them never share checkpoints.",
            )
        try:
            yield
        finally:
            self._control.ended()
            self._running.release()

    def _stand(self) -> Place | None:
        """Return where to begin, and remember it: what comes from there on is never left out any more.

        None when somebody ended the subscription before a relay could tell.
        """
        place, start = self._checkpoints.load(), self._start
        while place is None:
            try:
                place = self._resolve(start)
                self._checkpoints.store(place)
            except HeadraceError:
                if self._control.stopping:
                    return None
                to = self._control.taken_rewind()
                if to is None:
                    raise
                start = to
        self._control.enter(State.REGISTERED)
        return place

    @contextmanager
    def _fed(self, place: Place, may_merge: bool) -> Iterator[Feed[Piece]]:
        windows = Windows(
            self._source,
            place,
            self._version_of,
            shapes=self._shapes,
            merge=self._settings.merge_windows and may_merge,
        )
        feed = self._feed = Feed(
            self._relays,
            self._request,
            windows,
            buffer_bytes=self._settings.buffer_bytes,
            patience_s=self._settings.patience_s,
            pull_every_s=self._settings.pull_every_s,
            pause=self._control.sleep,
            clock=self._clock,
        )
        try:
            yield feed
        finally:
            feed.close()
            self._feed = None
            connections, _, peak = feed.counts
            self._connections += connections
            self._peak_bytes = max(self._peak_bytes, peak)

    def _resolve(self, start: Start) -> Place:
        return resolve(self._relays, self._request, start, self._control.sleep)

    def _dump(self) -> None:
        relay = self._relays.open(self._relays.urls[0])
        try:
            relay.dump(self._source)
        finally:
            relay.close()

    def _pause_for_schemas(self, rounds: int) -> bool:
        return self._control.sleep(self._settings.reconnect.pause_s(rounds, self._rng))

    def _wake(self) -> None:
        if (feed := self._feed) is not None:
            feed.wake()


def _checkpoints(where: Checkpoints | Path | str | None) -> Checkpoints:
    if where is None:
        return NoCheckpoints()
    return FileCheckpoints(where) if isinstance(where, Path | str) else where
