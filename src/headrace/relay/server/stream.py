"""One stream: the answer to ``/stream`` from its first byte to its last.

In: a checked request, and a feed. Out: frames of blocks and notes, or lines, as fast as the reader takes them. A reader
that is behind gets what there is in large pieces; one that is not waits, and costs nothing while it does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from starlette.types import Send

from headrace.errors import HeadraceError
from headrace.relay.server.connection import Connection
from headrace.relay.server.counters import Counters
from headrace.relay.server.feed import Feed, Turn
from headrace.relay.server.look_out import LookOut
from headrace.relay.server.request import StreamRequest
from headrace.relay.server.supply import Supply
from headrace.wire.body import Readable
from headrace.wire.lines import line
from headrace.wire.notes import encode_note
from headrace.wire.refusals import error_json

__all__ = ["Control", "Stream", "note_frame", "note_line"]

_NOW = time.monotonic
_NOTHING_TOLD = -1


class Control:
    """What all streams of a worker share.

    Attributes:
        ending: whether the relay ends.
        streams: those that are open.
        counters: what they count.
        heartbeat_s: as in the settings.
        send_timeout_s: likewise.
    """

    def __init__(self, counters: Counters, heartbeat_s: float, send_timeout_s: float) -> None:
        self.ending = False
        self.streams: set[Stream] = set()
        self.counters = counters
        self.heartbeat_s = heartbeat_s
        self.send_timeout_s = send_timeout_s

    @property
    def tick_s(self) -> float:
        """How often to look after the streams."""
        return min(self.heartbeat_s, self.send_timeout_s) / 4

    def cut_stalled(self) -> None:
        """Cut the readers that take nothing."""
        now = _NOW()
        for stream in list(self.streams):
            if stream.stalled_s(now) > self.send_timeout_s:
                stream.cut()


class NoteForm(Protocol):
    """How a note looks in the answer."""

    def __call__(self, kind: str, **said: Any) -> bytes:
        """Return its bytes."""
        ...


def note_frame(kind: str, **said: Any) -> bytes:
    """Return a note among blocks."""
    return encode_note(kind, **said)


def note_line(kind: str, **said: Any) -> bytes:
    """Return a note among lines."""
    return line(said if kind == "error" else {"note": kind, **said})


class Stream:
    """Sends what a supply gives out until it ends, the reader goes or the relay does."""

    def __init__(
        self,
        request: StreamRequest,
        feed: Feed,
        supply: Supply,
        look_out: LookOut,
        control: Control,
        connection: Connection,
        send: Send,
    ) -> None:
        self._request = request
        self._feed = feed
        self._supply = supply
        self._look_out = look_out
        self._control = control
        self._connection = connection
        self._send = send
        self._note: NoteForm = note_line if request.lines else note_frame
        self._sending_since: float | None = None
        self._unsent = 0
        self._sent_at = _NOW()

    async def run(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Answer the request.

        Raises:
            HeadraceError: before the first byte, so that it can be said with a status.
        """
        with self._feed.joined() as turn:
            await self._answer(headers, turn)

    async def _answer(self, headers: list[tuple[bytes, bytes]], turn: Turn) -> None:
        pieces = await self._first(turn)
        start = {"type": "http.response.start", "status": 200, "headers": headers}
        with self._open():
            await self._send(start)
            try:
                await self._body(pieces, turn)
                last = self._note("end", reason=self._reason)
            except HeadraceError as error:
                kind = type(error).__name__
                self._control.counters.add("refusals_total", self._feed.name, kind=kind)
                last = self._note("error", error=error_json(error))
            await self._hand_over(last, more=False)

    def stalled_s(self, now: float) -> float:
        """Return for how long the reader has taken nothing of what waits for it."""
        if self._sending_since is None:
            return 0.0
        if (unsent := self._connection.unsent_bytes) != self._unsent:
            self._unsent, self._sending_since = unsent, now
        return now - self._sending_since

    def cut(self) -> None:
        """Let the reader go."""
        self._control.counters.add("readers_cut_total", self._feed.name)
        self._connection.cut()

    @property
    def _reason(self) -> str:
        if self._supply.ended:
            return self._supply.ended
        return "drained" if not self._request.push and not self._control.ending else "shutdown"

    async def _first(self, turn: Turn) -> list[Readable]:
        """Return what the answer begins with; a pull waits for it if it was told to."""
        pieces = await self._supply.next()
        deadline = _NOW() + self._request.wait_ms / 1000
        while not pieces and not self._ends and (left := deadline - _NOW()) > 0:
            if self._supply.at_end:
                await asyncio.wait([self._news(turn)], timeout=left)
                self._feed.reader.look()
            else:
                # Of what was passed a filter left no line; there is more.
                await asyncio.sleep(0)
            pieces = await self._supply.next()
        return pieces

    async def _body(self, pieces: list[Readable], turn: Turn) -> None:
        """Send the pieces, then whatever follows, until there is a reason to end."""
        told = _NOTHING_TOLD
        while not self._connection.lost:
            for piece in pieces:
                await self._hand_over(piece)
            if self._ends:
                return
            if told != turn.told or not self._supply.at_end:
                # A reader on a fast connection would keep the loop for itself, as would one who is left nothing.
                await asyncio.sleep(0)
                if not pieces and self._request.push:
                    await self._beat()
                self._feed.reader.look()
            elif not self._request.push:
                return
            else:
                # Whatever came since the last look is told of as soon as somebody waits.
                await self._news(turn)
                await self._beat()
                self._feed.look()
            told = turn.told
            pieces = await self._supply.next()

    @property
    def _ends(self) -> bool:
        return bool(self._supply.ended) or self._control.ending or self._connection.lost

    def _news(self, turn: Turn) -> asyncio.Future[None]:
        news = turn.news()
        self._look_out.attend()
        return news

    async def _beat(self) -> None:
        """Tell a reader for whom nothing came for a while that it is still being served."""
        if _NOW() - self._sent_at >= self._control.heartbeat_s:
            covered, now_us = self._supply.covered_scn, time.time_ns() // 1000
            await self._hand_over(self._note("heartbeat", covered_scn=covered, time_us=now_us))

    async def _hand_over(self, data: Readable, *, more: bool = True) -> None:
        self._sending_since, self._unsent = _NOW(), -1
        if more:
            await self._connection.send_part(data)
        else:
            await self._send({"type": "http.response.body", "body": data, "more_body": more})
        self._sent_at, self._sending_since = self._sending_since, None
        self._control.counters.add("bytes_sent_total", self._feed.name, len(data))

    @contextmanager
    def _open(self) -> Iterator[None]:
        counters, name = self._control.counters, self._feed.name
        counters.add("streams_total", name)
        counters.add("streams", name)
        self._control.streams.add(self)
        try:
            yield
        finally:
            self._control.streams.discard(self)
            counters.add("streams", name, -1)
