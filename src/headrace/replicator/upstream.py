"""The relays that another relay follows, behind the port of `headrace.relay.follow`, over the client's transport.

One connection at a time, and a thread that receives from it: so the follower knows what waits, and syncs once for all
of it. Routing documents are not followed here: they name the relays for consumers, the follower itself among them.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Sequence

from headrace.client.buffer import ByteBuffer
from headrace.client.frames import Note
from headrace.client.http import HttpSettings
from headrace.client.relays import Backoff, Relays
from headrace.client.transport import AnyRelay, AnyStream, StreamRequest
from headrace.errors import ForeignUpstream, HeadraceError, RelayUnavailable, ScnNotFound
from headrace.model.block import Block, transaction_index
from headrace.model.schema import TableSchema
from headrace.relay.follow import Beginning
from headrace.wire.block import BlockFrame, encode_block, join_indexes, read_index
from headrace.wire.checked import CheckedBlock, checked
from headrace.wire.place import Place

__all__ = ["RelayUpstream"]

_BUFFER_BYTES = 64 * 2**20
_ROUND_BYTES = 16 * 2**20
"""Of blocks that are made durable together."""
_MOST_BLOCK_BYTES = 2 * 2**30

_Received = ByteBuffer[CheckedBlock | HeadraceError]


class RelayUpstream:
    """Several relays of one source, of which one is asked at a time.

    Args:
        urls: addresses, the preferred one first.
        source: its name there.
        http: time-outs and token.
        backoff: pauses when none answers.

    Raises:
        ConfigError: an address does not read.
    """

    def __init__(
        self, urls: Sequence[str], source: str, http: HttpSettings, backoff: Backoff | None = None
    ) -> None:
        self._source = source
        self._relays = Relays(
            urls,
            source,
            http,
            max_block_bytes=_MOST_BLOCK_BYTES,
            backoff=backoff or Backoff(),
            rng=random.Random(),
        )
        self._received = _Received(_BUFFER_BYTES)
        self._thread: threading.Thread | None = None
        self._broken: HeadraceError | None = None

    def beginning(self) -> Beginning:
        """Return where the upstream's log begins."""
        said = self._relays.current().buffer(self._source)
        first_us = int(said["segments"][0]["first_commit_us"]) if said["segments"] else 0
        return Beginning(int(said["oldest_scn"]), max(first_us - 1, 0))

    def open(self, after_scn: int, known_scn: int) -> None:
        """Begin to receive; see `headrace.relay.follow.Upstream`."""
        self.close()
        relay = self._relays.current()
        if known_scn:
            self._check_known(relay, known_scn, after_scn)
        stream = relay.stream(StreamRequest(self._source, after=Place(after_scn)))
        self._received = _Received(_BUFFER_BYTES)
        self._thread = threading.Thread(
            target=_receive, args=(stream, self._received), name="headrace-follow", daemon=True
        )
        self._thread.start()

    def take(self, timeout_s: float) -> list[CheckedBlock]:
        """Return blocks that came, in their order; none when none did in time.

        Raises:
            RelayUnavailable: the connection is gone.
            ProtocolError: a block is damaged.
        """
        broken, self._broken = self._broken, None
        if broken is not None:
            raise broken
        blocks: list[CheckedBlock] = []
        for item in self._received.take(timeout_s, _ROUND_BYTES):
            if isinstance(item, HeadraceError):
                # What came before it counts: a line that breaks again and again gets on nevertheless.
                self._broken = item
            else:
                blocks.append(item)
        if blocks:
            self._relays.answered()
        return blocks

    def schemas(self, ids: Iterable[int]) -> list[TableSchema]:
        """Return table versions, over a connection of their own."""
        relay = self._relays.open(self._relays.urls[0])
        try:
            return relay.schemas(self._source, ids)
        finally:
            relay.close()

    def failed(self) -> float:
        """Go on to the next relay, and return how many seconds to wait before it is asked."""
        self.close()
        return self._relays.failed()

    def close(self) -> None:
        """Stop receiving."""
        self._received.close()
        while self._thread is not None and self._thread.is_alive():
            self._relays.interrupt()
            self._thread.join(0.05)
        self._thread = self._broken = None
        self._relays.close()

    def interrupt(self) -> None:
        """Make whatever waits for an answer fail at once; from any thread."""
        self._relays.interrupt()

    def _check_known(self, relay: AnyRelay, scn: int, after_scn: int) -> None:
        """Look whether a relay holds a transaction, or has dropped it and goes on where we are.

        A log that was begun anew has other transactions, and says of none of them that it was dropped.

        Args:
            relay: asked.
            scn: of the newest transaction that is held here.
            after_scn: everything up to here is held.

        Raises:
            ForeignUpstream: it does not.
            ScnNotFound: it dropped more than is held here, or does not reach as far.
        """
        try:
            stream = relay.stream(
                StreamRequest(
                    self._source,
                    after=Place(scn - 1),
                    upto=scn,
                    pull=True,
                    max_bytes=_MOST_BLOCK_BYTES,
                )
            )
            if stream.covered_scn < scn:
                raise ScnNotFound(scn, stream.oldest_scn, stream.covered_scn)
            for frame in stream.frames():
                if isinstance(frame, BlockFrame) and frame.header.transactions:
                    if scn in join_indexes([read_index(frame.data, frame.header)])["scn"]:
                        return
                    break
        except ScnNotFound as error:
            if error.oldest > after_scn:
                raise ScnNotFound(after_scn, error.oldest, error.newest) from error
            if error.oldest >= scn:
                # Dropped, and no more than that: what comes next is there.
                return
            raise
        raise ForeignUpstream(
            f"Relay {relay.url} does not hold transaction {scn} of {self._source}, with which the copy ends: "
            "it serves another change log.",
            next_step="name relays of the same change log under relay.upstream.urls; or stop this relay, move its "
            "change log away and start it again, to copy the other one from its beginning.",
        )


def _receive(stream: AnyStream, received: _Received) -> None:
    """Put what comes into the buffer, at the end why nothing more does."""
    try:
        for frame in stream.frames():
            block = _heard(frame) if isinstance(frame, Note) else checked(frame.data)
            if block is not None and not received.put(block, len(block.data)):
                return
        raise RelayUnavailable("The upstream relay ends.", next_step="none: the next one is asked.")
    except HeadraceError as error:
        received.put(error)


def _heard(note: Note) -> CheckedBlock | None:
    """Return the coverage that a heartbeat tells of."""
    if note.kind != "heartbeat":
        return None
    covered = int(note.said.get("covered_scn", 0))
    return checked(encode_block(Block(transaction_index([]), (), (), covered)))
