"""A relay, asked over HTTP: its sources, its table versions, the outline of its log, and the stream as frames.

``docs/relay_protocol.md`` is the specification. Every block comes in memory of its own, whose rows are views into it
later on; its header was checked before that memory was taken, so damage never makes us ask for more than there is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, urlencode

import pyarrow as pa

from headrace.client.http import Answer, Connection, HttpSettings
from headrace.client.outline import Outline
from headrace.errors import BlockTooLarge, NotServed, ProtocolError, RelayError, RelayUnavailable
from headrace.model.schema import TableSchema
from headrace.wire.block import HEADER_BYTES, MAGIC, BlockHeader, read_header
from headrace.wire.notes import PREFIX_BYTES, PROTOCOL, decode_note, frame_length
from headrace.wire.place import Place
from headrace.wire.refusals import error_of

__all__ = ["AnyRelay", "AnyStream", "BlockFrame", "Note", "Relay", "Stream", "StreamRequest"]

_MOST_ANSWER_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """What is asked for.

    Attributes:
        source: which source.
        after: where the consumer stands; None with ``since_us``.
        since_us: begin with the first transaction that committed then or later, microseconds since 1970 UTC.
        upto: end once everything up to this SCN was sent.
        filter: as the protocol has it; it is passed on as it is.
        pull: end when nothing is left or ``max_bytes`` is reached, instead of going on as blocks come.
        max_bytes: of a pull.
        wait_ms: of a pull, for the first block.
    """

    source: str
    after: Place | None = None
    since_us: int | None = None
    upto: int | None = None
    filter: dict[str, Any] | None = None
    pull: bool = False
    max_bytes: int = 16 * 2**20
    wait_ms: int = 0

    def parameters(self) -> dict[str, Any]:
        """Return the names and values of the request; what is not asked for is left out."""
        said: dict[str, Any] = {"source": self.source, "mode": "pull" if self.pull else "push"}
        if self.after is not None:
            # Whose ordinal it is, the asker knows; no relay is told.
            said["after"] = str(Place(*self.after))
        if self.since_us is not None:
            said["since_us"] = self.since_us
        if self.upto is not None:
            said["upto"] = self.upto
        if self.pull:
            said |= {"max_bytes": self.max_bytes, "wait_ms": self.wait_ms}
        if self.filter is not None:
            said["filter"] = self.filter
        return said


class BlockFrame(NamedTuple):
    """A block as it was received; its header is checked, the rest is not yet."""

    header: BlockHeader
    data: memoryview


class Note(NamedTuple):
    """``heartbeat`` or ``end``, and what belongs to it."""

    kind: str
    said: dict[str, Any]


class AnyStream(Protocol):
    """One answer of whoever holds a log; `Stream` says what is promised."""

    oldest_scn: int
    covered_scn: int
    log: str
    routes: int

    def frames(self) -> Iterator[BlockFrame | Note]:
        """Yield blocks and notes as they come."""
        ...

    def next(self, wait_s: float | None = None) -> BlockFrame | Note | None:
        """Return the next frame, None when there is none."""
        ...

    @property
    def has_more(self) -> bool:
        """Whether something of the next frame is here already."""
        ...


class AnyRelay(Protocol):
    """Whoever holds the log of a source: a relay, or its folder; `Relay` says what is promised."""

    url: str

    def source(self, name: str) -> dict[str, Any]:
        """Return what it says of one source."""
        ...

    def schemas(self, source: str, ids: Iterable[int]) -> list[TableSchema]:
        """Return table versions of a source."""
        ...

    def buffer(self, source: str) -> dict[str, Any]:
        """Return what the change log of a source holds."""
        ...

    def outline(self, source: str, after: int, upto: int) -> Outline:
        """Return what lies in a range of a source."""
        ...

    def routes(self) -> dict[str, Any]:
        """Return the routing document."""
        ...

    def dump(self, source: str) -> dict[str, Any]:
        """Ask for a dump of all tables of a source."""
        ...

    def stream(self, request: StreamRequest) -> AnyStream:
        """Begin a stream."""
        ...

    def interrupt(self) -> None:
        """Make whatever waits fail at once; from any thread."""
        ...

    def close(self) -> None:
        """Let go of what is held."""
        ...


class Relay:
    """One relay over one connection. Used from one thread; `interrupt` from any.

    Args:
        url: its address.
        settings: how it is reached.
        max_block_bytes: a larger block is refused.
    """

    def __init__(self, url: str, settings: HttpSettings, max_block_bytes: int = 2 * 2**30) -> None:
        self.url = url
        self._connection = Connection(url, settings)
        self._max_block_bytes = max_block_bytes

    def sources(self) -> list[dict[str, Any]]:
        """Return what the relay says of each source it has.

        Raises:
            HeadraceError: as the protocol names it.
        """
        return list(self._json("GET", "/sources")["sources"])

    def source(self, name: str) -> dict[str, Any]:
        """Return what the relay says of one source.

        Raises:
            NotServed: it has none of that name.
            HeadraceError: it cannot read that one's log.
        """
        for said in self.sources():
            if said.get("name") == name:
                if "error" in said:
                    raise error_of(said["error"])
                return said
        raise NotServed(
            f"Relay {self.url} serves no source {name!r}.",
            next_step="ask it for /sources, and name one of them.",
        )

    def schemas(self, source: str, ids: Iterable[int]) -> list[TableSchema]:
        """Return table versions of a source.

        Raises:
            NotServed: one of them was never kept.
        """
        wanted = ",".join(f"{schema_id:016x}" for schema_id in ids)
        query = urlencode({"source": source, "ids": wanted}, quote_via=quote, safe=",")
        said = self._json("GET", f"/register?{query}")
        return [TableSchema.from_json(entry["schema"]) for entry in said["schemas"]]

    def buffer(self, source: str) -> dict[str, Any]:
        """Return what the relay's change log of a source holds."""
        return self._json("GET", f"/buffer?{urlencode({'source': source}, quote_via=quote)}")

    def outline(self, source: str, after: int, upto: int) -> Outline:
        """Return what lies in a range of a source, as far as one answer goes.

        Raises:
            ScnNotFound: the relay does not hold the range.
        """
        query = urlencode({"source": source, "after": after, "upto": upto}, quote_via=quote)
        return Outline.parse(self._json("GET", f"/outline?{query}"))

    def routes(self) -> dict[str, Any]:
        """Return the routing document."""
        return self._json("GET", "/routes")

    def dump(self, source: str) -> dict[str, Any]:
        """Ask for a dump of all tables of a source."""
        return self._json("POST", "/admin/dump", {"source": source, "table": "all"})

    def stream(self, request: StreamRequest) -> Stream:
        """Begin a stream.

        Raises:
            ScnNotFound: the relay does not hold the place.
            BlockTooLarge: a pull's first block is larger than ``max_bytes``.
            HeadraceError: as the protocol names it.
        """
        answer = self._connection.ask("POST", "/stream", request.parameters())
        self._check(answer)
        return Stream(self.url, answer, self._max_block_bytes)

    def interrupt(self) -> None:
        """Make whatever waits for this relay fail at once; from any thread."""
        self._connection.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _json(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        answer = self._connection.ask(method, path, body)
        self._check(answer)
        try:
            said = json.loads(answer.text(_MOST_ANSWER_BYTES))
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise self._no_relay("no JSON object")
        return said

    def _check(self, answer: Answer) -> None:
        """Raise what the answer says went wrong."""
        if 200 <= answer.status < 300:
            if answer.headers.get("headrace-protocol", str(PROTOCOL)) != str(PROTOCOL):
                raise self._no_relay("another protocol")
            return
        try:
            said = json.loads(answer.text(_MOST_ANSWER_BYTES))
            raise error_of(said["error"])
        except (ValueError, KeyError, TypeError):
            kind = RelayUnavailable if answer.status >= 500 else RelayError
            raise kind(
                f"Relay {self.url} answers with status {answer.status}.",
                next_step="check the address, and what stands between here and the relay.",
            ) from None

    def _no_relay(self, what: str) -> ProtocolError:
        return ProtocolError(
            f"Relay {self.url} answers with {what}.",
            next_step="check the address, and the relay's version.",
        )


class Stream:
    """The frames of one answer.

    Attributes:
        oldest_scn: what the relay held when the stream began.
        covered_scn: likewise, its newest.
        log: identity of the change log that it comes from, empty when the relay tells none.
        routes: version of the relay's routing document.
    """

    def __init__(self, url: str, answer: Answer, max_block_bytes: int) -> None:
        self._url = url
        self._answer = answer
        self._max_block_bytes = max_block_bytes
        self.oldest_scn = int(answer.headers.get("headrace-oldest-scn") or 0)
        self.covered_scn = int(answer.headers.get("headrace-covered-scn") or 0)
        self.log = answer.headers.get("headrace-log", "")
        self.routes = int(answer.headers.get("headrace-routes") or 0)
        self._coming = self._frames()
        self._begun = False
        self._wait_s: float | None = None

    def frames(self) -> Iterator[BlockFrame | Note]:
        """Yield blocks and notes as they come, the last one a note ``end``.

        Raises:
            RelayUnavailable: the connection was cut, or gave nothing in time.
            ProtocolError: what came is no frame, or a block's header is damaged.
            BlockTooLarge: a block is larger than this client takes.
            HeadraceError: what a note ``error`` says.
        """
        while (frame := self.next()) is not None:
            yield frame

    def next(self, wait_s: float | None = None) -> BlockFrame | Note | None:
        """Return the next frame; None behind the note ``end``, or when it did not come whole in time.

        Args:
            wait_s: how long to wait for what is missing; None for as long as the connection may be silent.

        Raises:
            HeadraceError: as `frames`.
        """
        if wait_s != self._wait_s:
            self._wait_s = wait_s
            self._answer.wait(wait_s)
        if not self._begun and (small := self._small()) is not None:
            return small
        return next(self._coming, None)

    @property
    def has_more(self) -> bool:
        """Whether bytes of the next frame were received already."""
        return self._answer.has_more

    def _frames(self) -> Iterator[BlockFrame | Note | None]:
        """Yield the frames that `_small` leaves, and None each time that nothing came in time."""
        head = memoryview(bytearray(HEADER_BYTES))
        while True:
            if not self._answer.has_more and not self._answer.ended:
                yield None
                continue
            self._begun = True
            yield from self._whole(head[:PREFIX_BYTES])
            length = frame_length(head[:PREFIX_BYTES])
            if bytes(head[:4]) == MAGIC:
                yield from self._whole(head[PREFIX_BYTES:])
                header = self._taken(read_header(head))
                # Arrow's own memory is not cleared first and is used again: several times as fast as a bytearray each.
                memory = memoryview(pa.allocate_buffer(header.length)).cast("B")
                memory[:HEADER_BYTES] = head
                yield from self._whole(memory[HEADER_BYTES:])
                self._begun = False
                yield BlockFrame(header, memory)
                continue
            frame = memoryview(bytearray(length))
            begun = min(length, PREFIX_BYTES)
            frame[:begun] = head[:begun]
            yield from self._whole(frame[begun:])
            note = _note(frame)
            self._begun = note.kind == "end"
            yield note
            if note.kind == "end":
                # The last chunk is taken too: the connection may serve again.
                self._answer.fill(memoryview(bytearray(1)))
                return

    def _small(self) -> BlockFrame | None:
        """Return the next block where all of it was received already: most of them, on a busy stream of small ones."""
        head = self._answer.staged(HEADER_BYTES)
        if head is None or head[: len(MAGIC)] != MAGIC:
            return None
        header = self._taken(read_header(head))
        data = self._answer.take(header.length)
        return None if data is None else BlockFrame(header, memoryview(data))

    def _taken(self, header: BlockHeader) -> BlockHeader:
        if header.length > self._max_block_bytes:
            error = BlockTooLarge(header.length)
            error.next_step = f"set max_block_bytes to {header.length} or more."
            raise error
        return header

    def _whole(self, view: memoryview) -> Iterator[None]:
        """Fill the view, and yield each time that nothing came in time."""
        while (got := self._answer.fill(view)) < len(view):
            if self._answer.ended:
                raise RelayUnavailable(
                    f"Relay {self._url}: the stream ended without saying so.",
                    next_step="none: it is asked again, here or at the next relay.",
                )
            view = view[got:]
            yield None


def _note(frame: memoryview) -> Note:
    said = decode_note(frame)
    if said["kind"] == "error":
        raise error_of(said.get("error") or {})
    return Note(said["kind"], said)
