"""A plain consumer for tests: the standard library's HTTP, and every frame as it came."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from headrace.model.block import Block
from headrace.wire import decode_block
from headrace.wire.notes import PREFIX_BYTES, decode_note, frame_length

DEADLINE_S = 30.0


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        return self.json["error"]


def connected(url: str, timeout_s: float = DEADLINE_S) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    assert parts.hostname is not None
    if parts.scheme == "https":
        trusting = ssl._create_unverified_context()
        return http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=timeout_s, context=trusting
        )
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)


def ask(
    url: str,
    path: str,
    *,
    post: Any = None,
    token: str = "",
    headers: dict[str, str] | None = None,
    **query: Any,
) -> Answer:
    """Return a whole answer."""
    connection = connected(url)
    said = dict(headers or {}) | ({"authorization": f"Bearer {token}"} if token else {})
    try:
        if post is not None:
            body = post if isinstance(post, bytes) else json.dumps(post)
            connection.request("POST", path, body, said)
        else:
            connection.request("GET", f"{path}?{urlencode(query)}" if query else path, headers=said)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, found, answer.read())
    finally:
        connection.close()


class Frames:
    """A stream, frame by frame."""

    def __init__(self, answer: http.client.HTTPResponse, taken: socket.socket) -> None:
        assert answer.status == 200, answer.read()
        self.headers = {name.lower(): value for name, value in answer.getheaders()}
        self.raw = bytearray()
        self.socket = taken
        self._answer = answer

    def __iter__(self) -> Iterator[Block | dict[str, Any]]:
        while (frame := self.frame()) is not None:
            yield frame

    def frame(self) -> Block | dict[str, Any] | None:
        """Return the next frame, decoded and checked; None at the end."""
        data = self._exactly(4)
        if not data:
            return None
        start = len(self.raw)
        while not (length := frame_length(data)):
            more = self._exactly(1)
            assert more, "the answer ends inside a frame"
            data += more
        assert len(data) <= PREFIX_BYTES
        data += self._exactly(length - len(data))
        assert len(data) == length, "the answer ends inside a frame"
        if data[:4] == b"HRNT":
            return decode_note(data)
        self.raw[start:] = data
        return decode_block(data)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count and (more := self._answer.read(count - len(data))):
            data += more
        return data

    def blocks(self) -> list[Block]:
        """Return every block, and check that the last frame is a note that ends it."""
        *blocks, last = self
        assert isinstance(last, dict)
        assert last["kind"] == "end", last
        return [block for block in blocks if isinstance(block, Block)]

    def until(self, scn: int) -> list[Block]:
        """Return the blocks up to the one that covers an SCN."""
        out: list[Block] = []
        while not out or out[-1].covered_scn < scn:
            frame = self.frame()
            assert frame is not None, f"the stream ended before {scn}"
            if isinstance(frame, Block):
                out.append(frame)
            else:
                assert frame["kind"] == "heartbeat", frame
        return out


@contextmanager
def stream(
    url: str, source: str = "shop", *, token: str = "", timeout_s: float = DEADLINE_S, **query: Any
) -> Iterator[Frames]:
    """Open a stream."""
    connection = connected(url, timeout_s)
    path = f"/stream?{urlencode({'source': source} | query)}"
    try:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        connection.request("GET", path, headers=headers)
        taken = connection.sock
        answer = connection.getresponse()
        yield Frames(answer, taken)
        answer.close()
    finally:
        connection.close()


def pulled(url: str, **query: Any) -> list[Block]:
    """Return the blocks of one pull."""
    with stream(url, mode="pull", **query) as frames:
        return frames.blocks()
