"""A relay, asked over HTTP: its sources, its table versions, the outline of its log, and streams.

``docs/relay_protocol.md`` is the specification.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from headrace.client.frames import Note, Stream
from headrace.client.http import Answer, Connection, HttpSettings
from headrace.client.memory import BlockMemory
from headrace.client.outline import Outline
from headrace.errors import NotServed, ProtocolError, RelayError, RelayUnavailable
from headrace.model.schema import TableSchema
from headrace.wire.block import BlockFrame
from headrace.wire.notes import PROTOCOL
from headrace.wire.place import Place
from headrace.wire.refusals import error_of

__all__ = ["AnyRelay", "AnyStream", "Relay", "StreamRequest"]

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
        self._memory = BlockMemory()
        self._max_block_bytes = max_block_bytes

    def sources(self) -> list[dict[str, Any]]:
        """Return what the relay says of each source it has.

        Raises:
            HeadraceError: as the protocol names it.
        """
        said = self._json("GET", "/sources")
        with self._read():
            return [dict(one) for one in said["sources"]]

    def source(self, name: str) -> dict[str, Any]:
        """Return what the relay says of one source.

        Raises:
            NotServed: it has none of that name.
            HeadraceError: it cannot read that one's log.
        """
        for said in self.sources():
            if said.get("name") == name:
                if "error" in said:
                    with self._read():
                        error = error_of(said["error"])
                    raise error
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
        with self._read():
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
        return Stream(self.url, answer, self._memory, self._max_block_bytes)

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

    @contextmanager
    def _read(self) -> Iterator[None]:
        """Name what is no relay's answer, though it came as one: something else may stand at the address."""
        try:
            yield
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self._no_relay("what it never says") from error

    def _no_relay(self, what: str) -> ProtocolError:
        return ProtocolError(
            f"Relay {self.url} answers with {what}.",
            next_step="check the address, and the relay's version.",
        )
