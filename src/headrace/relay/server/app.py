"""The relay as an application: which request goes where.

In: requests of HTTP. Out: answers as ``docs/relay_protocol.md`` has them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.changelog import Spot
from headrace.changelog.merging import Stored as StoredBlock
from headrace.errors import (
    BadRequest,
    CorruptSegment,
    HeadraceError,
    NotServed,
    ProtocolError,
    RelayUnavailable,
)
from headrace.observe.exposition import CONTENT_TYPE
from headrace.relay.server import admin, pages
from headrace.relay.server.access import Access
from headrace.relay.server.connection import connection_of
from headrace.relay.server.counters import Counters
from headrace.relay.server.feed import Feed
from headrace.relay.server.filtered import Filtering
from headrace.relay.server.guard import Guard, no_page, refusal
from headrace.relay.server.look_out import LookOut
from headrace.relay.server.outline import OutlineRequest, outline
from headrace.relay.server.request import StreamRequest, parameters
from headrace.relay.server.routes import Routes
from headrace.relay.server.settings import RelaySettings
from headrace.relay.server.stream import Control, Stream
from headrace.relay.server.supply import Piece, Rendered, Stored, Supply
from headrace.wire.block import decode_block
from headrace.wire.body import Readable
from headrace.wire.lines import block_lines
from headrace.wire.place import Place

__all__ = ["Relay"]

_BLOCKS = b"application/vnd.headrace.blocks"
_LINES = b"application/x-ndjson"
_SHARE_S = 1.0
"""How old may be what a worker tells of another one."""


class Relay:
    """One worker's part of a relay.

    Args:
        settings: what it serves.
        worker: its number among the processes that share the port.
        shut_down: asks whoever started the relay to end all of it.
        counts: folder in which the workers tell each other what they count; None for one alone.
    """

    def __init__(
        self,
        settings: RelaySettings,
        worker: int,
        shut_down: Callable[[], None],
        counts: Path | None = None,
    ) -> None:
        self.feeds = {source.name: Feed(source) for source in settings.sources}
        self.counters = Counters(worker, counts)
        self.control = Control(self.counters, settings.heartbeat_s, settings.send_timeout_s)
        self._access = Access(settings.tokens)
        self._routes = Routes(settings.sources)
        self._filtering = Filtering(self.counters)
        self._shut_down = shut_down
        self._look_out: LookOut | None = None
        self._beside: list[asyncio.Task[None]] = []
        inner = Starlette(
            routes=[
                Route("/sources", self._sources),
                Route("/register", self._register),
                Route("/stream", _Endpoint(self._stream), methods=["GET", "HEAD", "POST"]),
                Route("/outline", self._outline),
                Route("/buffer", self._buffer),
                Route("/routes", self._routing),
                Route("/metrics", self._metrics),
                Route("/healthz", self._health),
                Route("/admin/{command}", self._command, methods=["POST"]),
            ],
            exception_handlers={HeadraceError: self._refused, HTTPException: self._no_page},
        )
        self.app: ASGIApp = Guard(inner, self._access)

    def begin(self) -> None:
        """Start what runs beside the requests; called inside the event loop."""
        loop = asyncio.get_running_loop()
        self._look_out = LookOut(self.feeds.values(), loop)
        self._beside = [loop.create_task(self._tick()), loop.create_task(self._share())]

    def end(self) -> None:
        """Let every stream end with a note, and take no new one."""
        self.control.ending = True
        self._wake()

    def close(self) -> None:
        """End what runs beside the requests."""
        for task in self._beside:
            task.cancel()
        if self._look_out is not None:
            self._look_out.close()
        self._filtering.close()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.control.tick_s)
            self.control.cut_stalled()
            self._wake()

    async def _share(self) -> None:
        while True:
            self.counters.share()
            await asyncio.sleep(_SHARE_S)

    def _wake(self) -> None:
        for feed in self.feeds.values():
            feed.wake()

    # -- the stream -------------------------------------------------------------------------------

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = StreamRequest.parse(await parameters(Request(scope, receive)))
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
            # Behind the supply: where another log has come since, that gives nothing.
            (b"headrace-log", feed.identity.encode()),
            (b"headrace-routes", str(self._routes.version(feed.name)).encode()),
            (b"cache-control", b"no-store"),
        ]
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return
        connection = connection_of(scope)
        sending = connection.sending(send)
        stream = Stream(request, feed, supply, self._look_out, self.control, connection, sending)
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
        return JSONResponse({"sources": [await pages.source(feed) for feed in self.feeds.values()]})

    async def _register(self, request: Request) -> Response:
        feed = self._named(request.query_params)
        return JSONResponse(pages.schemas(feed, request.query_params.get("ids")))

    async def _outline(self, request: Request) -> Response:
        given = await parameters(request)
        return JSONResponse(await outline(self._named(given), OutlineRequest.parse(given)))

    async def _buffer(self, request: Request) -> Response:
        return JSONResponse(pages.buffer(self._named(request.query_params)))

    async def _routing(self, request: Request) -> Response:
        return JSONResponse(self._routes.document(str(request.base_url).rstrip("/")))

    async def _metrics(self, _: Request) -> Response:
        return PlainTextResponse(self.counters.text(self.feeds.values()), media_type=CONTENT_TYPE)

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
        asked = await parameters(request)
        known = {"pause": admin.pause, "resume": admin.resume}
        if command not in (*known, "dump", "retention"):
            raise no_page(request.url.path)
        feed = self._named(asked)
        feed.reader.look()
        if command == "retention":
            return JSONResponse(await asyncio.to_thread(admin.retention, feed, asked))
        if command == "dump":
            return JSONResponse(await asyncio.to_thread(admin.dump, feed, asked), 202)
        return JSONResponse(await asyncio.to_thread(known[command], feed))

    # -- refusals ---------------------------------------------------------------------------------

    async def _refused(self, _: Request, error: Exception) -> Response:
        if not isinstance(error, HeadraceError):
            raise error
        self.counters.add("refusals_total", "", kind=type(error).__name__)
        return refusal(error)

    async def _no_page(self, request: Request, _: Exception) -> Response:
        return refusal(no_page(request.url.path))

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


def _lines(data: Readable, place: Place, upto: int | None) -> Piece:
    try:
        block = decode_block(data)
    except ProtocolError as error:
        raise CorruptSegment(
            f"A block of the change log is damaged: {error.message}",
            next_step="restore the change log folder from a backup, or delete it and dump all tables again.",
        ) from error
    return Piece(block_lines(block, place, upto), not len(block.index))
