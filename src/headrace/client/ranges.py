"""Bounded ranges of one source's stream as blocks, for programs that share the work of reading between processes.

One process asks how far the source is and for the outline of a range, and cuts it; others fetch the blocks of their
parts. Every question goes from relay to relay while there is patience, then ends with the error that says why: a task
that waits for ever would look like one that works.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from headrace.client.feed import Feed
from headrace.client.outline import Extent, Outline
from headrace.client.relays import Relays
from headrace.client.schemas import Schemas
from headrace.client.settings import Settings
from headrace.client.told import Told
from headrace.client.transport import AnyRelay, StreamRequest
from headrace.errors import HeadraceError, ProtocolError, RelayUnavailable, Retry
from headrace.model.block import Block, Body
from headrace.model.schema import TableSchema
from headrace.wire.place import Inside, Place

__all__ = ["Ranges"]

_LOOK_S = 0.25

T = TypeVar("T")


class Ranges:
    """One source, as its relays hold it. Used from one thread.

    Args:
        urls: addresses, the preferred one first.
        source: whose stream.
        settings: sizes, time-outs, token; `Settings.patience_s` bounds every wait for something to come.
        clock: monotonic seconds.
        pause: waits for some seconds.

    Raises:
        ConfigError: a setting cannot be used, or an address does not read.
    """

    def __init__(
        self,
        urls: Sequence[str],
        source: str,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        settings.validate()
        self.source = source
        self._urls = urls
        self._settings = settings
        self._clock = clock
        self._pause = pause
        self._rng = random.Random()
        # Questions come while blocks are being fetched, over another connection.
        self._questions = self._relays()
        self._schemas = Schemas(self._questions, source, self._may_wait)
        self._waits_since = 0.0

    def reach(self) -> dict[str, Any]:
        """Return what ``/sources`` says of the source.

        Raises:
            NotServed: no relay has it.
            HeadraceError: none can tell.
        """
        return self._ask(lambda relay: relay.source(self.source))

    def schema(self, schema_id: int) -> TableSchema:
        """Return a table version.

        Raises:
            NotServed: no relay knows it.
            HeadraceError: none can tell.
        """
        return self._schemas.get(schema_id)

    def outline(self, after: int, upto: int) -> Iterator[Extent]:
        """Yield the extents of a range; more is asked for only when more is taken.

        Raises:
            ScnNotFound: no relay holds the range.
            HeadraceError: none can tell, or none has come so far yet.
        """
        at = after
        while at < upto:
            found = self._ask(partial(self._outline, after=at, upto=upto))
            yield from found.extents
            at = found.upto_scn

    def blocks(
        self, after: int, upto: int, filter: Mapping[str, Any] | None = None
    ) -> Iterator[Block]:
        """Yield the changes of a range in blocks, each change once, whatever happens to relays and connections.

        A block may hold a piece of a transaction, whose rest then comes in the next ones. The relay leaves out what
        ``filter`` does, as the protocol has it.

        Raises:
            ScnNotFound: no relay holds the range.
            HeadraceError: none can go on.
        """
        settings = self._settings
        if after >= upto:
            return
        behind = _Behind(Place(after))
        request = StreamRequest(
            self.source,
            after=behind.place,
            upto=upto,
            filter=None if filter is None else dict(filter),
            pull=True,
            max_bytes=settings.pull_bytes,
            wait_ms=settings.pull_wait_ms,
        )
        feed = Feed(
            self._relays(),
            request,
            behind,
            buffer_bytes=settings.buffer_bytes,
            patience_s=settings.patience_s,
            pull_every_s=settings.pull_every_s,
            pause=self._pause,
            clock=self._clock,
        )
        try:
            yield from self._patiently(feed)
        finally:
            feed.close()

    def close(self) -> None:
        """Close the connections."""
        self._questions.close()

    def _patiently(self, feed: Feed[Block]) -> Iterator[Block]:
        """Yield what a feed gives, as long as something comes."""
        moved_at, seen = self._clock(), (feed.place, feed.counts[0], feed.last_error)
        for block in feed.pieces(_LOOK_S):
            if block is not None:
                yield block
            if block is not None or feed.place != seen[0]:
                moved_at, seen = self._clock(), (feed.place, feed.counts[0], feed.last_error)
            elif self._clock() - moved_at >= self._settings.patience_s:
                # Without a new answer or failure a large block is on its way.
                if feed.last_error is not None and feed.last_error is not seen[2]:
                    raise feed.last_error
                if feed.counts[0] != seen[1]:
                    raise self._is_behind(feed.place.scn)

    def _outline(self, relay: AnyRelay, after: int, upto: int) -> Outline:
        found = relay.outline(self.source, after, upto)
        if found.upto_scn <= after:
            raise self._is_behind(after)
        return found

    def _is_behind(self, scn: int) -> RelayUnavailable:
        return RelayUnavailable(
            f"No relay of {self.source} goes on behind SCN {scn}, where another one did.",
            next_step="none: it is tried again; see that the relays' captures run.",
        )

    def _ask(self, question: Callable[[AnyRelay], T]) -> T:
        """Return the answer of the first relay that has one."""
        begun_at = self._clock()
        refused: dict[str, HeadraceError] = {}
        relays = self._questions
        while True:
            relay = relays.current()
            try:
                found = question(relay)
            except HeadraceError as error:
                if error.retry is not Retry.TIMED:
                    refused[relay.url] = error
                pause_s = relays.failed()
                waited = self._clock() - begun_at
                if set(relays.urls) <= refused.keys() or waited >= self._settings.patience_s:
                    # What a relay said of the question tells more than that another is gone.
                    raise next(iter(refused.values()), error) from None
                self._pause(min(pause_s, self._settings.patience_s - waited))
            else:
                relays.answered()
                return found

    def _may_wait(self, rounds: int) -> bool:
        if rounds == 1:
            self._waits_since = self._clock()
        if self._clock() - self._waits_since >= self._settings.patience_s:
            return False
        self._pause(self._settings.reconnect.pause_s(rounds - 1, self._rng))
        return True

    def _relays(self) -> Relays:
        settings = self._settings
        return Relays(
            self._urls,
            self.source,
            settings.http,
            max_block_bytes=settings.max_block_bytes,
            backoff=settings.reconnect,
            rng=self._rng,
        )


class _Behind:
    """Cuts off what came before, also inside a transaction.

    Attributes:
        place: behind everything that was given.
    """

    def __init__(self, after: Place) -> None:
        self.place = after
        # Of the open transaction.
        self._told = Told()
        self._to_find: Told | None = None

    def cut(self, block: Block) -> Iterator[Block]:
        """Yield the part behind the place, and stand behind it.

        Raises:
            ProtocolError: an open transaction does not go on where it should.
        """
        rest = block.after(self.place.after_scn)
        if len(rest.index):
            if not self.place.whole:
                rest = self._rest_of_open(rest)
            last, before = rest.last_scn, self.place
            if rest.ends_complete:
                self.place = Place(last)
            else:
                goes_on = before.scn == last and not before.whole
                told, above = (self._told, before.ord) if goes_on else (Told(), -1)
                self._told = told.then(rest, last, above)
                self.place = Inside(last, _last_ord(rest, before), "", self._told.changes)
            yield rest
        self.cover(block.covered_scn)

    def cover(self, scn: int) -> None:
        """Take note that nothing more comes up to ``scn``."""
        if self.place.whole:
            self.place = max(self.place, Place(scn))

    def began(self, log: str, *, elsewhere: bool) -> None:
        """Take note which log goes on; another one does from the beginning of the open transaction at the latest."""
        del log
        if elsewhere and not self.place.whole:
            self.place = Inside(self.place.scn, -1, "", self._told.changes)
            self._to_find = self._told

    def _rest_of_open(self, block: Block) -> Block:
        scn, order = self.place
        if block.first_scn != scn:
            raise ProtocolError(
                f"The rest of transaction {scn} behind change {order} did not come: "
                f"the stream goes on with {block.first_scn}.",
                next_step="none: it is asked for again; see the relay's log if that does not help.",
            )
        if self._to_find is not None:
            order, self._to_find = self._to_find.found(block, scn, order)
            self.place = Inside(scn, order, "", self._told.changes)
        bodies = []
        for body in block.bodies:
            count = int(body.batch.column("_scn").to_numpy().searchsorted(scn, side="right"))
            orders = body.batch.column("_ord").to_numpy()[:count]
            start = int(orders.searchsorted(order, side="right"))
            bodies.append(Body(body.schema_id, body.table, body.batch.slice(start)))
        events = tuple(event for event in block.system if (event.scn, event.ord) > (scn, order))
        return Block(block.index, tuple(bodies), events, block.covered_scn)


def _last_ord(block: Block, before: Place) -> int:
    """Return the last ordinal that a block holds of its last, open transaction; what was known when it holds none."""
    scn = block.last_scn
    known = before.ord if before.scn == scn and not before.whole else -1
    orders = [event.ord for event in block.system if event.scn == scn]
    for body in block.bodies:
        rows = body.batch
        if rows.num_rows and rows.column("_scn")[-1].as_py() == scn:
            orders.append(rows.column("_ord")[-1].as_py())
    return max([known, *orders])
