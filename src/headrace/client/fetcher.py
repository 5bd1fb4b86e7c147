"""The thread that receives: relays in, frames into the buffer, from one place on until it is stopped.

When a connection breaks it asks the next relay for what the buffer has not seen; what so comes twice is left out where
blocks are decoded (`headrace.client.windows`), because only there the place inside a window is known to the change.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from headrace.client.buffer import ByteBuffer
from headrace.client.errors import CheckpointUnusable, ClockWentBack
from headrace.client.reading import Began, Ended, Failed, Item, Reading, nbytes
from headrace.client.relays import Relays
from headrace.client.transport import StreamRequest
from headrace.errors import (
    BlockTooLarge,
    CorruptSegment,
    HeadraceError,
    ProtocolError,
    Retry,
    ScnNotFound,
)
from headrace.wire.block import BlockFrame
from headrace.wire.place import Place

__all__ = ["Answered", "Fetcher"]

_MOST_DAMAGED = 5
"""Damaged answers in a row after which nobody believes in chance any more."""
_FLOWS_S = 0.1
"""What comes within so long of being waited for belongs to a stream that flows. A relay with many readers sends what
comes in between in one piece, each 20 ms at the slowest: its streams flow too."""


class Answered(NamedTuple):
    """Who gave an answer.

    Attributes:
        url: address of the relay.
        log: identity of the change log that it came from, empty when it is not known.
    """

    url: str
    log: str


class Fetcher:
    """One run of receiving.

    Args:
        relays: asked one after the other.
        request: what for; its place is where to begin.
        buffer: where the frames go.
        delivered: returns how far the other side is.
        answered_by: who gave the last answer of an earlier run, None when there was none.
        patience_s: how long relays that do not hold the place are asked again, because another one may, or one that
            is behind may catch up.
        pull_every_s: pause of a pull behind an answer that drained the relay.
        clock: monotonic seconds.

    Attributes:
        answered_by: who gave the last answer, None when none did yet.
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
        answered_by: Answered | None = None,
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
        self._refused_inside: dict[str, HeadraceError] = {}
        self._refused_inside_at = Place(-1)
        self._refused_since = 0.0
        self._inside = False
        self._full_after: Place | None = None
        self._damaged = 0
        self.answered_by = answered_by
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
        except Exception as error:  # noqa: BLE001 - raised where it is waited for, which would be for ever
            self._buffer.put(Failed(error))
        finally:
            self._relays.close()

    def _receive(self) -> bool:
        """Take one answer to its end; return whether everything that was asked for came."""
        after = max(self._after, self._delivered())
        if self._request.upto is not None and after.after_scn >= self._request.upto:
            return True
        self._inside = False
        if self._full_after == after:
            # Pieces of one transaction that bring nobody on: the same again would never end.
            self._ask_for(self._request.max_bytes * 2)
        self._full_after = None
        relay = self._relays.current()
        # A place inside a window is one of the log that gave it.
        before = self.answered_by
        reached, elsewhere = after, before is not None and before.url != relay.url
        if elsewhere:
            after = Place(after.after_scn)
        stream = relay.stream(replace(self._request, after=after))
        # One address may stand for several relays, or for one that was given another log.
        logs = {after.log, before.log if before is not None else ""}
        if not elsewhere and logs - {"", stream.log}:
            elsewhere = True
            if not after.whole:
                after = Place(after.after_scn)
                stream = relay.stream(replace(self._request, after=after))
        if elsewhere and not reached.whole and reached.changes is None:
            raise _of_another_log(reached, relay.url)
        self.answered_by = Answered(relay.url, stream.log)
        self.connections += 1
        self._inside = True
        self._refusals.clear()
        self._relays.follow(stream.routes)
        self._buffer.put(Began(elsewhere, stream.log))
        reading = Reading(stream, after, self._request.upto)
        try:
            while reading.finished is None and not self._stop.is_set():
                self._read(reading)
        finally:
            self._after = max(self._after, reading.place)
        if reading.is_drained:
            self._stop.wait(self._pull_every_s)
        elif reading.finished is False:
            self._full_after = after
        return reading.finished is True

    def _read(self, reading: Reading) -> None:
        """Pass on the next item; where items come one after the other and are waited for, let them be fetched."""
        began, is_awaited = self._clock(), self._buffer.is_awaited
        item = reading.next(None)
        self._relays.answered()
        if isinstance(item, BlockFrame):
            self._damaged = 0
        if item is not None and self._buffer.put(item, nbytes(item)):
            flows = self._clock() - began < _FLOWS_S
            if is_awaited and flows and not self._request.pull:
                self._buffer.lend(reading)
                reading.raise_failure()

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
        if self._after > self._refused_inside_at:
            self._refused_inside.clear()
        if self._inside and not isinstance(error, ScnNotFound):
            # That a stream begins, here or elsewhere, changes nothing about what lies in its way.
            self._refused_inside[self._relays.current().url] = error
            self._refused_inside_at = self._after
        else:
            if not self._refusals:
                self._refused_since = self._clock()
            self._refusals[self._relays.current().url] = error
        if isinstance(error, ScnNotFound):
            # Who is above the newest asks a relay that is behind, or one of another log; who is below the oldest
            # fell off.
            waited = self._clock() - self._refused_since >= self._patience_s
            if waited or error.scn > error.newest:
                return waited
        refused = self._refusals.keys() | self._refused_inside.keys()
        return set(self._relays.urls) <= refused

    def _grown(self, error: BlockTooLarge) -> bool:
        """Ask for more from now on, as far as such a block would be taken."""
        if error.needed_bytes > self._relays.max_block_bytes:
            return False
        self._ask_for(error.needed_bytes)
        return True

    def _ask_for(self, max_bytes: int) -> None:
        most = max(self._request.max_bytes, self._relays.max_block_bytes)
        self._request = replace(self._request, max_bytes=min(max_bytes, most))


def _of_another_log(place: Place, url: str) -> CheckpointUnusable:
    return CheckpointUnusable(
        f"The checkpoint {place} lies inside a window of another change log than the one of relay {url}, and does not "
        "say how many of its rows were processed.",
        next_step=f"name the relay that gave it; or rewind to {place.after_scn}: all of the window comes once more.",
    )
