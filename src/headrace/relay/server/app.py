"""The relay as an application: which request goes where, who may ask it, and how refusals look.

In: requests of HTTP. Out: answers as ``docs/relay_protocol.md`` has them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.changelog import Spot
from headrace.changelog.merging import Stored as StoredBlock
from headrace.errors import (
    BadRequest,
    CorruptSegment,
    HeadraceError,
    NotServed,
    ProtocolError,
    RelayUnavailable,
    UnsupportedProtocol,
)
from headrace.relay.server import admin, pages
from headrace.relay.server.access import Access
from headrace.relay.server.connection import connection_of
from headrace.relay.server.counters import Counters
from headrace.relay.server.feed import Feed, LookOut
from headrace.relay.server.filtered import Filtering
from headrace.relay.server.lines import block_lines
from headrace.relay.server.outline import OutlineRequest, outline
from headrace.relay.server.request import StreamRequest
from headrace.relay.server.routes import Routes
from headrace.relay.server.settings import RelaySettings, Role
from headrace.relay.server.stream import Control, Stream
from headrace.relay.server.supply import Piece, Rendered, Stored, Supply
from headrace.wire.block import decode_block
from headrace.wire.body import Readable
from headrace.wire.notes import PROTOCOL
from headrace.wire.place import Place
from headrace.wire.refusals import error_json, status_of

__all__ = ["Relay"]

_PROTOCOL = str(PROTOCOL).encode()
_BLOCKS = b"application/vnd.headrace.blocks"
_LINES = b"application/x-ndjson"
_MOST_BODY_BYTES = 2**20


class Relay:
    """One worker's part of a relay.

    Args:
        settings: what it serves.
        worker: its number among the processes that share the port.
        shut_down: asks whoever started the relay to end all of it.
    """

    def __init__(self, settings: RelaySettings, worker: int, shut_down: Callable[[], None]) -> None:
        self.feeds = {source.name: Feed(source) for source in settings.sources}
        self.counters = Counters(worker)
        self.control = Control(self.counters, settings.heartbeat_s, settings.send_timeout_s)
        self._access = Access(settings.tokens)
        self._routes = Routes(settings.sources)
        self._filtering = Filtering(self.counters)
        self._shut_down = shut_down
        self._look_out: LookOut | None = None
        self._ticking: asyncio.Task[None] | None = None
        inner = Starlette(
            routes=[
                Route("/sources", self._sources),
                Route("/register", self._register),
                Route("/stream", _Endpoint(self._stream), methods=["GET", "POST"]),
                Route("/outline", self._outline),
                Route("/buffer", self._buffer),
                Route("/routes", self._routing),
                Route("/metrics", self._metrics),
                Route("/healthz", self._health),
                Route("/admin/{command}", self._command, methods=["POST"]),
            ],
            exception_handlers={HeadraceError: self._refused, HTTPException: self._no_page},
        )
        self.app: ASGIApp = _Guard(inner, self._access)

    def begin(self) -> None:
        """Start what runs beside the requests; called inside the event loop."""
        loop = asyncio.get_running_loop()
        self._look_out = LookOut(self.feeds.values(), loop)
        self._ticking = loop.create_task(self._tick())

    def end(self) -> None:
        """Let every stream end with a note, and take no new one."""
        self.control.ending = True
        self._wake()

    def close(self) -> None:
        """End what runs beside the requests."""
        if self._ticking is not None:
            self._ticking.cancel()
        if self._look_out is not None:
            self._look_out.close()
        self._filtering.close()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.control.tick_s)
            self.control.cut_stalled()
            self._wake()

    def _wake(self) -> None:
        for feed in self.feeds.values():
            feed.wake()

    # -- the stream -------------------------------------------------------------------------------

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = StreamRequest.parse(await _parameters(Request(scope, receive)))
        feed = self._feed(request.source)
        if self.control.ending or self._look_out is None:
            raise RelayUnavailable("The relay ends.", next_step="ask another relay, or again soon.")
        tail = feed.tail()
        place = await self._place(feed, request)
        spot = await feed.find(place)
        supply = self._supply(feed, spot, place, request)
        headers = [
            (b"content-type", _LINES if request.lines else _BLOCKS),
            (b"headrace-source", feed.name.encode()),
            (b"headrace-oldest-scn", str(tail.oldest_scn).encode()),
            (b"headrace-covered-scn", str(tail.covered_scn).encode()),
            (b"headrace-routes", str(self._routes.version(feed.name)).encode()),
            (b"cache-control", b"no-store"),
        ]
        connection = connection_of(scope)
        stream = Stream(request, feed, supply, self._look_out, self.control, connection, send)
        await stream.run(headers)

    async def _place(self, feed: Feed, request: StreamRequest) -> Place:
        if request.since_us is not None:
            return Place(await feed.since(request.since_us))
        if request.after == "oldest":
            return Place(feed.reader.tail.oldest_scn)
        if request.after == "newest":
            return Place(feed.reader.tail.covered_scn)
        return request.after

    # -- pages ------------------------------------------------------------------------------------

    async def _sources(self, _: Request) -> Response:
        return JSONResponse({"sources": [pages.source(feed) for feed in self.feeds.values()]})

    async def _register(self, request: Request) -> Response:
        feed = self._named(request.query_params)
        return JSONResponse(pages.schemas(feed, request.query_params.get("ids")))

    async def _outline(self, request: Request) -> Response:
        given = await _parameters(request)
        return JSONResponse(await outline(self._named(given), OutlineRequest.parse(given)))

    async def _buffer(self, request: Request) -> Response:
        return JSONResponse(pages.buffer(self._named(request.query_params)))

    async def _routing(self, request: Request) -> Response:
        return JSONResponse(self._routes.document(str(request.base_url).rstrip("/")))

    async def _metrics(self, _: Request) -> Response:
        return PlainTextResponse(self.counters.text(self.feeds.values()))

    async def _health(self, _: Request) -> Response:
        wrong = pages.health(list(self.feeds.values()))
        if wrong:
            return JSONResponse({"status": "failing", "wrong": wrong}, 503)
        return JSONResponse({"status": "ok"})

    # -- commands ---------------------------------------------------------------------------------

    async def _command(self, request: Request) -> Response:
        command = request.path_params["command"]
        if command == "shutdown":
            self._shut_down()
            return JSONResponse({"status": "ending"}, 202)
        asked = await _parameters(request)
        known = {"pause": admin.pause, "resume": admin.resume}
        if command not in (*known, "dump", "retention"):
            raise _no_page(request.url.path)
        feed = self._named(asked)
        feed.reader.look()
        if command == "retention":
            raise admin.refuse_retention(feed)
        if command == "dump":
            return JSONResponse(await asyncio.to_thread(admin.dump, feed, asked), 202)
        return JSONResponse(await asyncio.to_thread(known[command], feed))

    # -- refusals ---------------------------------------------------------------------------------

    async def _refused(self, _: Request, error: Exception) -> Response:
        if not isinstance(error, HeadraceError):
            raise error
        self.counters.add("refusals_total", "", kind=type(error).__name__)
        return _refusal(error)

    async def _no_page(self, request: Request, _: Exception) -> Response:
        return _refusal(_no_page(request.url.path))

    def _named(self, given: Mapping[str, Any]) -> Feed:
        name = given.get("source")
        if not isinstance(name, str) or not name:
            raise BadRequest(
                "The parameter source is missing.", next_step="name one of GET /sources."
            )
        return self._feed(name)

    def _feed(self, name: str) -> Feed:
        feed = self.feeds.get(name)
        if feed is None:
            raise NotServed(
                "The relay has no such source.",
                next_step=f"name one of {', '.join(self.feeds) or 'none'}.",
            )
        return feed

    def _supply(self, feed: Feed, spot: Spot, place: Place, request: StreamRequest) -> Supply:
        """Return what makes the answer's bytes of the stored blocks."""
        filter_ = request.filter
        if filter_ is None and not request.lines:
            return Stored(feed, spot, request)

        async def left(block: StoredBlock) -> Piece:
            if filter_ is None:
                return Piece(block.segment.bytes_of(block.offset, block.header.length), False)
            return await self._filtering.left(feed, filter_, block)

        async def lines(block: StoredBlock) -> Piece:
            data = (await left(block)).data
            return await asyncio.to_thread(_lines, data, place, request.upto)

        return Rendered(feed, spot, request, lines if request.lines else left)


class _Endpoint:
    """An endpoint that sends its answer itself, piece by piece."""

    def __init__(self, answer: Callable[[Scope, Receive, Send], Any]) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope, receive, send)


class _Guard:
    """Looks at each request before the application does, and puts the protocol's version on each answer."""

    def __init__(self, inner: ASGIApp, access: Access) -> None:
        self._inner = inner
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_version(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).append("headrace-protocol", _PROTOCOL.decode())
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._inner)(scope, receive, with_version)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        spoken = headers.get("headrace-protocol")
        if spoken is not None and spoken != _PROTOCOL.decode():
            error = UnsupportedProtocol(
                f"The relay speaks protocol {PROTOCOL} alone.",
                next_step="use versions of headrace on both sides that fit together.",
            )
            return _refusal(error)
        path = scope["path"]
        if path == "/healthz":
            return None
        role = self._access.role(headers.get("authorization"))
        if role is None:
            answer = _refusal(self._access.unknown(), 401)
            answer.headers["www-authenticate"] = "Bearer"
            return answer
        if path.startswith("/admin/") and role is not Role.ADMIN:
            return _refusal(self._access.too_low())
        return None


def _lines(data: Readable, place: Place, upto: int | None) -> Piece:
    try:
        block = decode_block(data)
    except ProtocolError as error:
        raise CorruptSegment(
            f"A block of the change log is damaged: {error.message}",
            next_step="restore the change log folder from a backup, or delete it and dump all tables again.",
        ) from error
    return Piece(block_lines(block, place, upto), not len(block.index))


def _refusal(error: HeadraceError, status: int | None = None) -> Response:
    return JSONResponse({"error": error_json(error)}, status or status_of(error))


def _no_page(path: str) -> NotServed:
    return NotServed(
        f"The relay has no page {path[:80]}, or not for this method.",
        next_step="see docs/relay_protocol.md for the pages that there are.",
    )


async def _parameters(request: Request) -> Mapping[str, Any]:
    """Return the names and values of a query, or of a JSON object.

    Raises:
        BadRequest: a name comes twice, or the body is no JSON object.
    """
    if request.method == "GET":
        pairs = request.query_params.multi_items()
        names = [name for name, _ in pairs]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise BadRequest(f"The parameter {twice[:40]} comes twice.", next_step="say it once.")
        return dict(pairs)
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BODY_BYTES:
            raise BadRequest(
                f"The body is larger than {_MOST_BODY_BYTES:,} bytes.", next_step="say it shorter."
            )
    try:
        value = json.loads(body)
    except ValueError as error:
        raise BadRequest("The body is no JSON.", next_step="send a JSON object.") from error
    if not isinstance(value, dict):
        raise BadRequest("The body is no JSON object.", next_step="send a JSON object.")
    return value
