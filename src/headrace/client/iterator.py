"""Windows by iteration: the same events as callbacks get, for programs that want to ask instead of being called."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator

from headrace.client.checkpoints import Checkpoints
from headrace.client.consumer import Batch, Event, Window
from headrace.client.control import Control
from headrace.client.errors import WindowUnfinished
from headrace.client.feed import Feed
from headrace.client.rows import RowSlice
from headrace.client.windows import Part, Piece
from headrace.model.block import SystemEvent
from headrace.wire.place import Place

__all__ = ["IteratedWindow", "iterate"]


class IteratedWindow:
    """One window. Iterating gives its events, and its system events at their place, once.

    A large window is never held whole.

    Attributes:
        window: what the callbacks are told of it.
    """

    def __init__(
        self,
        piece: Piece,
        following: Iterator[Piece | None],
        store: Callable[[Place], None],
        is_over: Callable[[], bool],
    ) -> None:
        self.window: Window = piece.window
        self._ends = self._given_up = False
        self._parts = self._read(piece, following)
        self._store = store
        self._is_over = is_over

    def __iter__(self) -> Iterator[Event | SystemEvent]:
        """Yield the events.

        Raises:
            WindowUnfinished: somebody wants an end or another place, and the rest of the window does not come.
        """
        for part in self._parts:
            if isinstance(part, RowSlice):
                yield from part.events()
            else:
                yield part

    def batches(self) -> Iterator[Batch | SystemEvent]:
        """Yield what is left of the window as batches, and system events at their place.

        Raises:
            WindowUnfinished: as by iterating.
        """
        for part in self._parts:
            yield part.batch() if isinstance(part, RowSlice) else part

    def done(self) -> None:
        """Remember that the window was processed, and all before it.

        Raises:
            CheckpointUnusable: the place cannot be stored.
            WindowUnfinished: it was given up before its end.
        """
        if self._given_up:
            raise WindowUnfinished(self.window.scn)
        self._store(self.window.place)

    def finish(self) -> bool:
        """Pass over what was not asked for; return whether the window came to its end."""
        with contextlib.suppress(WindowUnfinished):
            for _ in self._parts:
                pass
        return self._ends

    def _read(self, piece: Piece | None, following: Iterator[Piece | None]) -> Iterator[Part]:
        waits = False
        while True:
            if piece is not None:
                yield from piece.parts
                if piece.ends:
                    self._ends = True
                    return
            # Once it may be no more than the word by which we are woken: the rest may be there.
            elif waits and self._is_over():
                self._given_up = True
                raise WindowUnfinished(self.window.scn)
            waits = piece is None
            try:
                piece = next(following)
            except StopIteration:
                return


def iterate(
    feed: Feed[Piece],
    checkpoints: Checkpoints,
    control: Control,
    *,
    look_s: float,
    idle_checkpoint_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> Generator[IteratedWindow, None, bool]:
    """Yield windows until somebody wants something else; return whether everything that was asked for came."""
    stored = done = feed.place
    stored_at = clock()

    def store(place: Place) -> None:
        nonlocal stored, done, stored_at
        checkpoints.store(place)
        stored = done = place
        stored_at = clock()

    def is_behind(place: Place) -> bool:
        """Whether a place moved without windows, behind all that were given and done."""
        return place.whole and done >= given and place > stored

    def is_over() -> bool:
        return control.asked and not control.hold()

    pieces = feed.pieces(look_s)
    given = feed.place
    for piece in pieces:
        if piece is not None:
            window = IteratedWindow(piece, pieces, store, is_over)
            yield window
            if not window.finish():
                return False
            given = window.window.place
        elif is_behind(feed.place) and clock() - stored_at >= idle_checkpoint_s:
            # Nothing more came up to here, and everything before it was done.
            store(feed.place)
        if is_over():
            return False
    return True
