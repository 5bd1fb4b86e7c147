"""One run of a subscription with callbacks: deliver, and decide what happens when that fails.

A failed callback means: pause, roll the consumer back to its last checkpoint, deliver again. When that failed at one
place more often than it may, or something is wrong that another try does not change, the run waits for a person.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal, TypeAlias

from headrace.client.checkpoints import Checkpoints
from headrace.client.control import Control
from headrace.client.dead_letters import DeadLetters
from headrace.client.dispatcher import Dispatcher
from headrace.client.errors import CallbackFailed, CheckpointUnusable, FatalResult
from headrace.client.feed import Feed
from headrace.client.settings import Settings
from headrace.client.start import Start
from headrace.client.windows import Piece
from headrace.errors import HeadraceError, ScnNotFound
from headrace.wire.place import Place

__all__ = ["LOOK_S", "Delivery", "OnLost"]

LOOK_S = 0.5
"""How often a quiet subscription looks around."""

OnLost: TypeAlias = Literal["stop", "dump"] | Callable[[ScnNotFound], Place]

_log = logging.getLogger(__name__)


class Delivery:
    """Used from the thread that delivers.

    Args:
        dispatcher: calls the consumer.
        checkpoints: its places.
        control: what people ask for.
        settings: how often to try.
        fed: opens the stream behind a place; the second argument says whether transactions may be merged.
        resolve: makes a place of a word or a time.
        dump: asks for a dump of all tables.
        begun_at: where the consumer stands without a checkpoint.
        on_lost: what to do when no relay holds the place.
        wait_for_people: False to raise what suspends.
        dead_letters: for windows that are skipped.
        rng: decides the jitter.

    Attributes:
        poison: first and last SCN of the window that failed last, of several where it may be any of them; None when
            one was delivered since.
        skipped: likewise of those that people want to pass.
        rollbacks: so far.
        last_commit_us: of the newest window that was delivered.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        checkpoints: Checkpoints,
        control: Control,
        settings: Settings,
        *,
        fed: Callable[[Place, bool], AbstractContextManager[Feed[Piece]]],
        resolve: Callable[[Start], Place],
        dump: Callable[[], object],
        begun_at: Place,
        on_lost: OnLost,
        wait_for_people: bool,
        dead_letters: DeadLetters | None,
        rng: random.Random,
    ) -> None:
        self._dispatcher = dispatcher
        self._checkpoints = checkpoints
        self._control = control
        self._settings = settings
        self._fed = fed
        self._resolve = resolve
        self._dump = dump
        self._begun_at = begun_at
        self._on_lost = on_lost
        self._wait_for_people = wait_for_people
        self._dead_letters = dead_letters
        self._rng = rng
        self._failed_at = Place(-1)
        self._failures = 0
        self.poison: tuple[int, int] | None = None
        self.skipped: list[tuple[int, int]] = []
        self.rollbacks = 0
        self.last_commit_us = 0

    def run(self, place: Place) -> None:
        """Deliver from a place on until it is stopped, or everything that was asked for came.

        Raises:
            FatalResult: a callback wanted an end.
            HeadraceError: what suspends, when nobody shall be waited for.
        """
        following: Place | None = place
        while following is not None:
            try:
                following = self._from(following)
            except FatalResult:
                raise
            except HeadraceError as error:
                following = self._again(error)

    def _from(self, place: Place) -> Place | None:
        """Deliver from a place on; return where to begin again, None at the end."""
        control, dispatcher = self._control, self._dispatcher
        if not control.hold():
            return self._turned(clean=True)
        ended = False
        alone = bool(self.skipped) or dispatcher.careful
        with self._fed(place, not alone) as feed:
            for piece in feed.pieces(LOOK_S):
                if piece is not None:
                    self._deliver(piece)
                    if alone and piece.ends and self._may_merge_again():
                        return dispatcher.place
                else:
                    self._between(lambda: dispatcher.cover(feed.place))
                if control.asked and not control.hold():
                    break
            else:
                self._between(lambda: dispatcher.cover(feed.place))
                ended = True
        if not ended:
            # Only now: where to begin again is asked over the connection on which the feed received.
            return self._turned(clean=True)
        self._between(dispatcher.finish)
        return None

    def _deliver(self, piece: Piece) -> None:
        window = piece.window
        if self.skipped and any(first <= window.scn <= last for first, last in self.skipped):
            assert self._dead_letters is not None
            self._dead_letters.add(piece)
            self._dispatcher.pass_over(piece)
            return
        try:
            self._dispatcher.deliver(piece)
        except HeadraceError as error:
            late = isinstance(error, CallbackFailed) and (
                error.callback == "on_checkpoint" or error.place.scn < window.first_scn
            )
            self._blame(None if late else window.first_scn, window.scn)
            raise
        self.poison = None
        if piece.ends:
            self.last_commit_us = window.commit_us

    def _between(self, act: Callable[[], None]) -> None:
        """Do what may need a checkpoint between two windows."""
        try:
            act()
        except CallbackFailed:
            self._blame(None, self._dispatcher.place.scn)
            raise

    def _blame(self, first: int | None, last: int) -> None:
        """Remember what failed; when it may be any of several windows, the next try tells them one by one.

        Args:
            first: SCN of the window's first transaction; None for all since the last checkpoint: whoever writes then,
                or in workers, may have met it in any of them.
            last: SCN of its last one.
        """
        if first is None:
            first = self._dispatcher.stored.after_scn + 1
        self.poison = (first, last)
        if first < last:
            self._dispatcher.careful_to = Place(last)

    def _may_merge_again(self) -> bool:
        return self._settings.merge_windows and not self.skipped and not self._dispatcher.careful

    def _again(self, error: HeadraceError) -> Place | None:
        """Make the best of an error: return where to begin again, None at the end."""
        self._dispatcher.give_way()
        if isinstance(error, ScnNotFound) and self._on_lost != "stop":
            try:
                return self._found(error, self._on_lost)
            except FatalResult:
                raise
            except HeadraceError as failed:
                error = self._not_anew(failed)
        while True:
            self._control.error = error
            go_on = self._pause(error) if self._may_pass(error) else self._suspend(error)
            try:
                # Whoever wants an end or another place needs no rollback first.
                return self._roll_back() if go_on else self._turned(clean=False)
            except FatalResult:
                raise
            except HeadraceError as failed:
                error = failed

    def _not_anew(self, error: HeadraceError) -> HeadraceError:
        """Take back that everything comes anew, which the consumer may have been told; return what is in the way."""
        try:
            self._roll_back()
        except FatalResult:
            raise
        except HeadraceError as failed:
            return failed
        return error

    def _may_pass(self, error: HeadraceError) -> bool:
        """Count a failure; return whether it is worth another try by itself."""
        if not isinstance(error, CallbackFailed | CheckpointUnusable):
            return False
        at = error.place if isinstance(error, CallbackFailed) else self._dispatcher.place
        self._failures = 1 if at > self._failed_at else self._failures + 1
        self._failed_at = max(at, self._failed_at)
        return self._failures <= self._settings.retries

    def _pause(self, error: HeadraceError) -> bool:
        _log.warning("%s Delivered again from the last checkpoint, try %d.", error, self._failures)
        return self._control.sleep(self._settings.retry.pause_s(self._failures - 1, self._rng))

    def _suspend(self, error: HeadraceError) -> bool:
        """Wait for a person; return False when that one wants an end or another place."""
        if self._control.stopping:
            return False
        if not self._wait_for_people:
            raise error
        _log.error("Suspended: %s", error)
        go_on = self._control.suspend(error, self._dispatcher.error)
        self._failures, self._failed_at = 0, Place(-1)
        return go_on

    def _roll_back(self) -> Place:
        place = self._checkpoints.load() or self._begun_at
        self.rollbacks += 1
        self._dispatcher.rollback(place, place)
        return place

    def _turned(self, *, clean: bool) -> Place | None:
        """Do what people asked for: return where to begin again, None for the end.

        Args:
            clean: whether everything up to the place was processed, so that it may be stored.
        """
        to = self._control.taken_rewind()
        if self._control.stopping or to is None:
            if clean:
                self._between(self._dispatcher.finish)
            return None
        place = self._resolve(to)
        if clean:
            place = self._no_gap_before(place)
        self.skipped.clear()
        self._failures, self._failed_at = 0, Place(-1)
        # Stored first: should the rollback fail, the next one leads here too.
        self._checkpoints.store(place)
        self._dispatcher.rollback(place, place)
        return place

    def _no_gap_before(self, place: Place) -> Place:
        """Return where to begin again so that nothing ahead of it is forgotten by the rollback without coming again."""
        if place > self._dispatcher.stored:
            self._between(self._dispatcher.finish)
        stored = self._checkpoints.load() or self._begun_at
        # Of what was delivered behind the checkpoint the consumer may have nothing durable.
        return stored if stored < place <= self._dispatcher.place else place

    def _found(self, error: ScnNotFound, on_lost: OnLost) -> Place:
        """Begin anew after the relays' logs have gone past the consumer."""
        # Whoever owns its place no more is told so by this, and empties nothing that is its successor's.
        self._checkpoints.load()
        _log.warning("%s The consumer begins anew.", error)
        self.rollbacks += 1
        if callable(on_lost):
            self._dispatcher.rollback(Place(0), Place(0))
            place = on_lost(error)
        else:
            place = self._resolve("newest")
            self._dispatcher.rollback(Place(0), place)
            self._dump()
        self._checkpoints.store(place)
        return place
