"""The thread that receives: relays in, frames into the buffer, from one place on until it is stopped.

It decodes nothing but headers. When a connection breaks it asks the next relay for what the buffer has not seen;
what so comes twice is left out where blocks are decoded (`headrace.client.windows`), because only there the place
inside a window is known to the change.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from headrace.client.buffer import ByteBuffer
from headrace.client.errors import ClockWentBack
from headrace.client.relays import Relays
from headrace.client.transport import BlockFrame, Note, StreamRequest
from headrace.errors import (
    BlockTooLarge,
    CorruptSegment,
    HeadraceError,
    ProtocolError,
    RelayUnavailable,
    Retry,
    ScnNotFound,
)
from headrace.wire.block import BlockHeader
from headrace.wire.place import Place

__all__ = ["Began", "Covered", "Ended", "Failed", "Fetcher", "Item"]

_MOST_DAMAGED = 5
"""Damaged answers in a row after which nobody believes in chance any more."""


@dataclass(frozen=True, slots=True)
class Began:
    """Another answer begins: its first block may hold what came before once more."""


@dataclass(frozen=True, slots=True)
class Covered:
    """Everything up to this SCN was sent."""

    scn: int


@dataclass(frozen=True, slots=True)
class Ended:
    """What was asked for is complete."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Receiving is over: no relay can go on."""

    error: HeadraceError


Item: TypeAlias = BlockFrame | Began | Covered | Ended | Failed


class Fetcher:
    """One run of receiving.

    Args:
        relays: asked one after the other.
        request: what for; its place is where to begin.
        buffer: where the frames go.
        delivered: returns how far the other side is.
        patience_s: how long relays that do not hold the place are asked again, because another one may, or one that
            is behind may catch up.
        pull_every_s: pause of a pull behind an answer that drained the relay.
        clock: monotonic seconds.

    Attributes:
        connections: answers that began.
        last_error: why the last one ended early.
    """

    def __init__(
        self,
        relays: Relays,
        request: StreamRequest,
        buffer: ByteBuffer[Item],
        *,
        delivered: Callable[[], Place],
        patience_s: float,
        pull_every_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        assert request.after is not None
        self._relays = relays
        self._request = request
        self._buffer = buffer
        self._delivered = delivered
        self._patience_s = patience_s
        self._pull_every_s = pull_every_s
        self._clock = clock
        self._after = request.after
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-fetch", daemon=True)
        self._refusals: dict[str, HeadraceError] = {}
        self._refused_since = 0.0
        self._damaged = 0
        self.connections = 0
        self.last_error: HeadraceError | None = None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and come back when the thread has."""
        self._stop.set()
        self._buffer.close()
        while self._thread.is_alive():
            # A connection that is only just being made has nothing to interrupt yet.
            self._relays.interrupt()
            self._thread.join(0.05)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    if self._receive():
                        self._buffer.put(Ended())
                        return
                except HeadraceError as error:
                    if self._stop.is_set():
                        return
                    self.last_error = error
                    if self._hopeless(error):
                        self._buffer.put(Failed(error))
                        return
                    self._stop.wait(self._relays.failed())
        finally:
            self._relays.close()

    def _receive(self) -> bool:
        """Take one answer to its end; return whether everything that was asked for came."""
        after = max(self._after, self._delivered())
        if self._request.upto is not None and after.after_scn >= self._request.upto:
            return True
        relay = self._relays.current()
        stream = relay.stream(replace(self._request, after=after))
        self.connections += 1
        self._refusals.clear()
        self._relays.follow(stream.routes)
        self._buffer.put(Began())
        order = _Order(after)
        for frame in stream.frames():
            if self._stop.is_set():
                return False
            if isinstance(frame, Note):
                if (ended := self._noted(frame)) is not None:
                    return ended
                continue
            order.check(frame.header)
            if not self._buffer.put(frame, len(frame.data)):
                return False
            self._damaged = 0
            self._relays.answered()
            self._after = max(
                self._after, Place(max(frame.header.complete_scn, frame.header.covered_scn))
            )
        return False

    def _noted(self, note: Note) -> bool | None:
        """Return None to read on, True when all came, False when the answer ended and another is asked for."""
        self._relays.answered()
        if note.kind == "heartbeat":
            covered = int(note.said.get("covered_scn", 0))
            if Place(covered) > self._after:
                self._after = Place(covered)
                self._buffer.put(Covered(covered))
            return None
        if note.kind != "end":
            return None
        reason = note.said.get("reason")
        if reason == "shutdown":
            raise RelayUnavailable(
                "The relay ends.", next_step="none: the next relay of the list is asked."
            )
        if reason == "upto":
            if (upto := self._request.upto) is not None:
                self._buffer.put(Covered(upto))
            return True
        if reason == "drained":
            self._stop.wait(self._pull_every_s)
        return False

    def _hopeless(self, error: HeadraceError) -> bool:
        """Return whether asking again, here or elsewhere, would change nothing."""
        if isinstance(error, ClockWentBack):
            return True
        if isinstance(error, BlockTooLarge) and self._request.pull and self._grown(error):
            return False
        if isinstance(error, ProtocolError | CorruptSegment):
            self._damaged += 1
            return self._damaged >= _MOST_DAMAGED
        if error.retry is Retry.TIMED:
            return False
        if not self._refusals:
            self._refused_since = self._clock()
        self._refusals[self._relays.current().url] = error
        if isinstance(error, ScnNotFound):
            # Who is above the newest asks a relay that is behind, or one of another log; who is below the oldest
            # fell off.
            waited = self._clock() - self._refused_since >= self._patience_s
            if waited or error.scn > error.newest:
                return waited
        return set(self._relays.urls) <= self._refusals.keys()

    def _grown(self, error: BlockTooLarge) -> bool:
        """Ask for more from now on, as far as such a block would be taken."""
        if error.needed_bytes > self._relays.max_block_bytes:
            return False
        self._request = replace(self._request, max_bytes=error.needed_bytes)
        return True


class _Order:
    """Transactions of one answer rise, and begin above what was asked for."""

    def __init__(self, after: Place) -> None:
        self._last = after.after_scn
        self._open = False
        self._began = False

    def check(self, header: BlockHeader) -> None:
        """Look at the range of the next block.

        Raises:
            ClockWentBack: transactions come that are not above those before.
            ProtocolError: a transaction that spans blocks ended without its last piece.
        """
        if not header.transactions:
            return
        if not self._began and header.last_scn <= self._last < header.covered_scn:
            # A block that goes on behind the place, of which a filter left only what lies before it.
            return
        goes_on = self._open and header.first_scn == self._last
        # Nothing is cut from a block: the first may hold what lies below, but not that alone.
        lowest_new = header.first_scn if self._began else header.last_scn
        if lowest_new <= self._last and not goes_on:
            raise ClockWentBack(lowest_new, self._last)
        if self._open and not goes_on:
            raise ProtocolError(
                f"Transaction {self._last} goes on in the next block, which begins with {header.first_scn}.",
                next_step="none: it is asked for again; see the relay's log if that does not help.",
            )
        self._began = True
        self._last, self._open = header.last_scn, not header.ends_complete
