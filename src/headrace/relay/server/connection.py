"""A connection that knows when it was lost, and that can be cut.

A stream may last for months. ASGI tells an application only when it asks that its reader has gone, for which a task
would have to wait; and it offers no way to end a connection whose reader takes nothing.
"""

from __future__ import annotations

import socket
import struct
import termios
from fcntl import ioctl
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headrace.wire.body import Readable

if TYPE_CHECKING:
    from starlette.types import Message, Scope, Send

__all__ = ["Connection", "connection_of"]

_KEY = "headrace.connection"
_INT = struct.Struct("i")
_MOST_HEAD_BYTES = 2**20
"""As much as of a body; a filter may stand in the address."""
_NEAR_BYTES = 256 * 1024
"""As much as the kernel keeps for a reader on the same machine, where it would go up to megabytes: between two copies
it stays in the processor's caches, and both take less time. A reader far away needs as much as travels at once, which
the kernel finds out by itself."""
_COPIED_BYTES = 64 * 1024
"""Up to here a copy in one piece costs less than three pieces, which many connections may share besides."""


class _Chunk:
    """The last small part that was sent, as a chunk: many connections send the same one after the other."""

    def __init__(self) -> None:
        self._part: Readable = b""
        self._chunk = b""

    def of(self, part: Readable) -> bytes:
        if part is not self._part:
            self._part, self._chunk = part, b"".join((b"%x\r\n" % len(part), part, b"\r\n"))
        return self._chunk


_chunk = _Chunk()


class Connection(HttpToolsProtocol):
    """One consumer's connection.

    Attributes:
        lost: whether it has ended.
    """

    lost = _plain = False
    _head_bytes: int | None = 0
    """Of the request that is coming in; None behind them."""

    def connection_made(self, transport: Any) -> None:
        """Let less be on its way to a reader on the same machine."""
        super().connection_made(transport)
        names = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        if all(isinstance(name, tuple) for name in names) and names[0][0] == names[1][0]:
            taken = transport.get_extra_info("socket")
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _NEAR_BYTES)

    def data_received(self, data: bytes) -> None:
        """Take bytes; end the connection where they are headers without an end, which would all be kept."""
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > _MOST_HEAD_BYTES:
                self.send_400_response("The headers are too long.")
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        """Let the application find the connection of its request."""
        super().on_message_begin()
        self.scope[_KEY] = self  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        """Take note."""
        self._head_bytes = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Take note: another request may follow."""
        self._head_bytes = 0
        super().on_message_complete()

    def sending(self, send: Send) -> Send:
        """Return what sends begin and end of an answer whose parts `send_part` sends.

        Whoever speaks HTTP/1.0 knows no chunks: the answer ends with its connection.
        """
        self._plain = self.scope["http_version"] == "1.0"
        if not self._plain:
            return send

        async def plainly(message: Message) -> None:
            if message["type"] == "http.response.start":
                # Not before: a refusal has a length.
                self.cycle.chunked_encoding = False
            elif last := message.get("body"):
                await self.send_part(last)
                message = {**message, "body": b""}
            await send(message)

        return plainly

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note."""
        self.lost = True
        super().connection_lost(exc)

    async def send_part(self, data: Readable) -> None:
        """Send a part of an answer that has begun, which `send` would copy to put a chunk's length before it."""
        if self.flow.write_paused:
            await self.flow.drain()
        if self.lost:
            return
        if self._plain:
            self.transport.write(memoryview(data))
        elif len(data) <= _COPIED_BYTES:
            self.transport.write(_chunk.of(data))
        else:
            self.transport.writelines((b"%x\r\n" % len(data), memoryview(data), b"\r\n"))

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait for the reader to take some, here and in the kernel, whose part may be megabytes."""
        if self.transport.is_closing():
            # Its socket may be closed by now.
            return 0
        taken = self.transport.get_extra_info("socket")
        queued = ioctl(taken.fileno(), termios.TIOCOUTQ, bytes(_INT.size))
        return self.transport.get_write_buffer_size() + int(_INT.unpack(queued)[0])

    def cut(self) -> None:
        """End it now; what waits is not sent."""
        self.transport.abort()


def connection_of(scope: Scope) -> Connection:
    """Return the connection of a request."""
    found: Any = scope[_KEY]
    return found  # type: ignore[no-any-return]
