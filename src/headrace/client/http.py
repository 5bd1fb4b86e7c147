"""HTTP/1.1 as far as a relay's client needs it, reading straight into the caller's memory.

In: requests. Out: answers whose bodies fill buffers that the caller brings, in large pieces and without a copy between;
chunked transfer coding is taken off on the way. The standard library's own client would wait for a whole buffer where a
stream gives what there is. Used from one thread; only `Connection.interrupt` may come from another.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from zlib_ng.zlib_ng import crc32

from headrace.errors import ConfigError, ProtocolError, RelayUnavailable
from headrace.wire.notes import PROTOCOL

__all__ = ["Answer", "Connection", "HttpSettings"]

_STAGED_BYTES = 128 * 1024
"""Received at once when little is wanted: lines, notes, small blocks. A large block is copied that far."""
_DIRECT_BYTES = 32 * 1024
"""From here on bytes go straight to where they are wanted."""
_LINE_BYTES = 64
"""Received at once for a chunk's length, where what follows goes straight to where it is wanted."""
_HOT_BYTES = 128 * 1024
"""Received and summed at once: it still lies in the processor's nearer caches then."""
_NOTHING_IN_TIME = (TimeoutError, BlockingIOError)
_MOST_HEADERS = 100
_TIME = struct.Struct("@ll")
"""The kernel's seconds and microseconds."""


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """How relays are reached.

    Attributes:
        connect_timeout_s: for the connection and TLS.
        read_timeout_s: a stream that sends nothing for this long, no heartbeat either, is taken for dead.
        token: sent as ``Authorization: Bearer``; none by default.
        tls: for ``https`` addresses; None for the system's certificates.
    """

    connect_timeout_s: float = 5.0
    read_timeout_s: float = 30.0
    token: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None


class Connection:
    """One connection to one relay; made at the first request, kept between them.

    Args:
        url: ``http://host:port`` or ``https://host:port``, with or without a path in front of the relay's own.
        settings: time-outs, token, certificates.

    Raises:
        ConfigError: the address does not read, or the token cannot be sent.
    """

    def __init__(self, url: str, settings: HttpSettings) -> None:
        self.url = url
        self._settings = settings
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError:
            parts, self._host = urlsplit(""), ""
        if parts.scheme not in ("http", "https") or not self._host:
            raise ConfigError(
                f"{url!r} is no address of a relay.",
                next_step="write http://HOST:PORT or https://HOST:PORT.",
            )
        if not _is_header(settings.token or ""):
            raise ConfigError(
                f"The token for {url} has characters that no header of a request holds.",
                next_step="give the token as the relay's file has it, on one line.",
            )
        self._secure = parts.scheme == "https"
        self._port = self._port or (443 if self._secure else 80)
        self._prefix = parts.path.rstrip("/")
        self._socket: socket.socket | None = None
        self._incoming: _Incoming | None = None
        self._answer: Answer | None = None

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """Send a request and return the answer, of whose body nothing was read yet.

        Args:
            method: ``GET`` or ``POST``.
            path: with its query.
            body: sent as JSON; None for no body.

        Raises:
            RelayUnavailable: no connection, no answer in time, or it was cut.
            ProtocolError: the answer is no HTTP.
        """
        data = b"" if body is None else json.dumps(body).encode()
        if self._answer is not None and not self._answer.ended:
            self.close()
        try:
            incoming = self._connected()
            incoming.wait(None)
            assert self._socket is not None
            self._socket.sendall(self._head(method, path, data) + data)
            self._answer = Answer(self.url, incoming)
        except OSError as error:
            self.close()
            raise self._unavailable(error) from error
        except BaseException:
            self.close()
            raise
        return self._answer

    def interrupt(self) -> None:
        """Make whatever waits on this connection fail at once; from any thread."""
        if (held := self._socket) is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(held, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; the next request makes another."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
        self._socket = self._incoming = self._answer = None

    def _connected(self) -> _Incoming:
        if self._incoming is not None:
            return self._incoming
        plain = socket.create_connection(
            (self._host, self._port), timeout=self._settings.connect_timeout_s
        )
        self._socket = plain
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._secure:
            context = self._settings.tls or ssl.create_default_context()
            self._socket = context.wrap_socket(plain, server_hostname=self._host)
        self._incoming = _Incoming(self.url, self._socket, self._settings.read_timeout_s)
        return self._incoming

    def _head(self, method: str, path: str, data: bytes) -> bytes:
        host = f"[{self._host}]" if ":" in self._host else self._host
        lines = [
            f"{method} {quote(self._prefix)}{path} HTTP/1.1",
            f"host: {host}:{self._port}",
            f"headrace-protocol: {PROTOCOL}",
        ]
        if self._settings.token is not None:
            lines.append(f"authorization: Bearer {self._settings.token}")
        if data or method == "POST":
            lines += ["content-type: application/json", f"content-length: {len(data)}"]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def _unavailable(self, error: OSError) -> RelayUnavailable:
        if isinstance(error, ssl.SSLCertVerificationError):
            return RelayUnavailable(
                f"Relay {self.url}: its certificate is not believed ({error.verify_message}).",
                next_step="name the authority that signed it: --ca FILE, relay.upstream.ca, Spark's option ca, or "
                "HttpSettings.tls; or an address that the certificate is for.",
            )
        if isinstance(error, BlockingIOError):
            return _gone(self.url, "it took no request in time")
        return _gone(self.url, error.strerror or str(error) or type(error).__name__)


class Answer:
    """Status and headers of an answer, and its body bit by bit.

    Attributes:
        status: HTTP's number.
        headers: by name in small letters.
        ended: whether the whole body was read.
    """

    def __init__(self, url: str, incoming: _Incoming) -> None:
        self._url = url
        self._incoming = incoming
        self.status = self._status(incoming.line())
        self.headers: dict[str, str] = {}
        while line := incoming.line():
            name, _, value = line.decode("latin-1").partition(":")
            self.headers[name.strip().lower()] = value.strip()
            if len(self.headers) > _MOST_HEADERS:
                raise _no_http(url, "too many headers")
        self._chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        length = self.headers.get("content-length", "")
        if not self._chunked and not length.isdecimal():
            raise _no_http(url, "a body without a length")
        self._left = 0 if self._chunked else int(length)
        self._behind_chunk = self._behind_last = False
        self.ended = not self._chunked and self._left == 0

    @property
    def has_more(self) -> bool:
        """Whether bytes of the body lie here that were received already."""
        line_end = 2 if self._behind_chunk and not self._left else 0
        return self._incoming.end - self._incoming.start > line_end

    def staged(self, count: int) -> memoryview | None:
        """Return the next bytes of the body without taking them; None where they do not come in one small piece.

        They are good until something else is called. Of what comes otherwise the first byte is here then, unless
        nothing came in time: a chunk's length alone is no news of its bytes.
        """
        incoming = self._incoming
        try:
            if not self._left and not self.ended:
                self._next_chunk()
            is_small = count <= min(self._left, _STAGED_BYTES)
            while incoming.end - incoming.start < (count if is_small else min(1, self._left)):
                incoming.stage()
        except _Quiet:
            return None
        return incoming.view[incoming.start : incoming.start + count] if is_small else None

    def take(self, count: int) -> bytes | None:
        """Return the next bytes of the body; None where they are not all here in one piece."""
        incoming = self._incoming
        start, end = incoming.start, incoming.start + count
        if count > self._left or end > incoming.end:
            if self.staged(count) is None:
                return None
            # It may have been moved to where there was room for the rest.
            start, end = incoming.start, incoming.start + count
        data = bytes(incoming.view[start:end])
        incoming.start = end
        self._left -= count
        self.ended = not self._left and not self._chunked
        return data

    def wait(self, seconds: float | None) -> None:
        """Let `fill` wait so long for each piece from now on; None for as long as the connection may be silent."""
        self._incoming.wait(seconds)

    def fill(self, view: memoryview) -> int:
        """Read until the view is full, the body ends or nothing comes in time; return how many bytes that were.

        Raises:
            RelayUnavailable: the connection was cut, or gave nothing for as long as it may be silent.
            ProtocolError: the body's coding is damaged.
        """
        return self._filled(view, None)[0]

    def fill_summed(self, view: memoryview, crc: int) -> tuple[int, int]:
        """Do as `fill`; return how many bytes that were, and the CRC-32 of what came before and of them.

        Args:
            view: filled from its beginning.
            crc: of what came before, 0 for nothing.
        """
        got, summed = self._filled(view, crc)
        assert summed is not None
        return got, summed

    def _filled(self, view: memoryview, crc: int | None) -> tuple[int, int | None]:
        wanted = len(view)
        with contextlib.suppress(_Quiet):
            while view and not self.ended:
                if not self._left:
                    self._next_chunk(_STAGED_BYTES if len(view) < _DIRECT_BYTES else _LINE_BYTES)
                    continue
                got, crc = self._incoming.some(view[: self._left], crc)
                view = view[got:]
                self._left -= got
                if not self._left and not self._chunked:
                    self.ended = True
        return wanted - len(view), crc

    def text(self, most_bytes: int) -> bytes:
        """Return the whole body.

        Raises:
            ProtocolError: it is longer than ``most_bytes``.
        """
        parts = []
        left = most_bytes
        while not self.ended:
            part = bytearray(min(_STAGED_BYTES, left))
            got = self.fill(memoryview(part))
            parts.append(bytes(part[:got]))
            left -= got
            if not left and not self.ended:
                raise _no_http(self._url, f"an answer of more than {most_bytes:,} bytes")
        return b"".join(parts)

    def _next_chunk(self, most_bytes: int = _STAGED_BYTES) -> None:
        """Read up to the next chunk's bytes. Where a line has not come yet, another call goes on with it."""
        if self._behind_chunk:
            if self._incoming.line(most_bytes):
                raise _no_http(self._url, "a chunk that is longer than it says")
            self._behind_chunk = False
        if not self._behind_last:
            text = self._incoming.line(most_bytes)
            try:
                self._left = int(text.split(b";")[0] if b";" in text else text, 16)
            except ValueError:
                raise _no_http(self._url, "a chunk without a length") from None
            self._behind_last = not self._left
            self._behind_chunk = not self._behind_last
        if self._behind_last:
            while self._incoming.line():
                pass
            self.ended = True

    def _status(self, line: bytes) -> int:
        version, _, rest = line.partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise _no_http(self._url, "another protocol")
        return int(rest[:3])


class _Quiet(Exception):
    """Nothing came in the time that was given; nothing was lost."""


class _Incoming:
    """What a socket gives: small things by way of a buffer, large ones straight to where they are wanted.

    Args:
        url: whose.
        sock: connected.
        silent_s: how long it may give nothing.

    Attributes:
        view: of the buffer; what was received and not yet taken lies from ``start`` to ``end``.
        start: whoever takes bytes there moves it on.
        end: behind the last one.
    """

    def __init__(self, url: str, sock: socket.socket, silent_s: float) -> None:
        self._url = url
        self._socket = sock
        self._silent_s = self._wait_s = silent_s
        _let_wait(sock, silent_s)
        self._heard_at = time.monotonic()
        self._staged = bytearray(_STAGED_BYTES)
        self.view = memoryview(self._staged)
        self.start = self.end = 0

    def wait(self, seconds: float | None) -> None:
        wait_s = self._silent_s if seconds is None else seconds
        if wait_s != self._wait_s:
            self._wait_s = wait_s
            self._heard_at = time.monotonic()
            try:
                _let_wait(self._socket, wait_s)
            except OSError as error:
                raise _gone(self._url, "the connection was closed") from error

    def line(self, most_bytes: int = _STAGED_BYTES) -> bytes:
        """Return the next line without its end; of what follows not more is received with it than that."""
        while (at := self._staged.find(b"\n", self.start, self.end)) < 0:
            self.stage(most_bytes)
        line = bytes(self.view[self.start : at])
        self.start = at + 1
        return line.removesuffix(b"\r")

    def some(self, view: memoryview, crc: int | None) -> tuple[int, int | None]:
        """Put at least one byte into the view; return how many that were, and the CRC-32 that goes on with them."""
        if self.start == self.end:
            if len(view) >= _DIRECT_BYTES:
                return (self._receive(view), None) if crc is None else self._summed(view, crc)
            self.stage()
        got = min(len(view), self.end - self.start)
        view[:got] = self.view[self.start : self.start + got]
        self.start += got
        return got, None if crc is None else crc32(view[:got], crc)

    def _summed(self, view: memoryview, crc: int) -> tuple[int, int]:
        """Put into the view what comes until it is full, and go on with the CRC-32.

        It is most of what receiving costs beside the system's part: everything that is not needed for each piece is
        done outside.
        """
        at, size, receive = 0, len(view), self._socket.recv_into
        try:
            while at < size:
                piece = view[at : at + _HOT_BYTES]
                if not (got := receive(piece)):
                    raise self._cut()
                crc = crc32(piece if got == _HOT_BYTES else piece[:got], crc)
                at += got
        except (OSError, ValueError) as error:
            if not at or not isinstance(error, _NOTHING_IN_TIME):
                raise self._failure(error) from error
        self._was_heard()
        return at, crc

    def stage(self, most_bytes: int = _STAGED_BYTES) -> None:
        if self.start == self.end:
            self.start = self.end = 0
        elif self.end == len(self._staged):
            if not self.start:
                raise _no_http(self._url, "a line without an end")
            kept = bytes(self.view[self.start : self.end])
            self.view[: len(kept)] = kept
            self.start, self.end = 0, len(kept)
        self.end += self._receive(self.view[self.end : self.end + most_bytes])

    def _receive(self, view: memoryview) -> int:
        try:
            got = self._socket.recv_into(view)
        except (OSError, ValueError) as error:
            raise self._failure(error) from error
        if not got:
            raise self._cut()
        self._was_heard()
        return got

    def _was_heard(self) -> None:
        if self._wait_s < self._silent_s:
            self._heard_at = time.monotonic()

    def _failure(self, error: Exception) -> Exception:
        """Return what it means that nothing was received."""
        if not isinstance(error, _NOTHING_IN_TIME):
            return _gone(self._url, f"the connection broke ({type(error).__name__})")
        if self._wait_s < self._silent_s and time.monotonic() - self._heard_at < self._silent_s:
            return _Quiet()
        return _gone(self._url, "it sent nothing in time, no heartbeat either")

    def _cut(self) -> RelayUnavailable:
        return _gone(self._url, "the connection was cut")


def _let_wait(sock: socket.socket, seconds: float) -> None:
    """Let receiving and sending give up after so long.

    The kernel's own time-out costs nothing where bytes come in time. Python's would ask first whether there are any,
    with a system call and a turn of the interpreter's lock for each piece; TLS, which sends to receive, needs it.
    """
    if isinstance(sock, ssl.SSLSocket):
        sock.settimeout(seconds)
        return
    whole, part = divmod(max(1, round(seconds * 1e6)), 1_000_000)
    for which in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, which, _TIME.pack(whole, part))
    sock.settimeout(None)


def _is_header(text: str) -> bool:
    """Whether a text can stand in a header: letters of Latin-1, and none that ends a line."""
    return all(letter <= "\xff" and letter.isprintable() for letter in text)


def _gone(url: str, what: str) -> RelayUnavailable:
    return RelayUnavailable(
        f"Relay {url}: {what}.",
        next_step="none: it is tried again, here or at the next relay; see that one of them runs.",
    )


def _no_http(url: str, what: str) -> ProtocolError:
    return ProtocolError(
        f"What {url} answers is no relay's: {what}.",
        next_step="check the address, and what stands between here and the relay.",
    )
