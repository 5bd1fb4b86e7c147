"""A proxy between a client and a real object store that does to chosen requests what networks and servers do."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

__all__ = ["Fault", "FaultProxy", "Request", "pass_all"]


class Fault(Enum):
    """What becomes of a request."""

    NONE = "none"
    """It is carried out and answered."""
    LOST_REQUEST = "lost request"
    """The connection breaks before the server hears of it."""
    LOST_ANSWER = "lost answer"
    """The server carries it out, and the connection breaks before the client hears of it."""
    BUSY = "busy"
    """The server says 503 and does nothing."""
    CONFLICT = "conflict"
    """The server says 409 and does nothing: another write of that name is under way."""
    NO_CONDITION = "no condition"
    """The answer of a server that passes over ``If-None-Match: *``: the object is there, and writing it succeeds."""


_STATUS = {Fault.BUSY: 503, Fault.CONFLICT: 409}


@dataclass(frozen=True, slots=True)
class Request:
    """What a rule sees of a request.

    Attributes:
        number: of the request, from 1.
        method: of HTTP.
        key: bucket and key, and what is asked of them.
        conditional: whether it may only make what is not there.
    """

    number: int
    method: str
    key: str
    conditional: bool


Rule = Callable[[Request], Fault]


def pass_all(_request: Request) -> Fault:
    """Do nothing to any request."""
    return Fault.NONE


class FaultProxy:
    """A server on this machine that hands every request on to another one.

    Args:
        port: of the other one.

    Attributes:
        rule: says what becomes of each request; may change at any time.
        requests: what came, in order.
    """

    def __init__(self, port: int) -> None:
        self.rule: Rule = pass_all
        self.requests: list[Request] = []
        self._upstream = port
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def endpoint(self) -> str:
        """URL of the proxy."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(proxy) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                # Clients and faults break connections; the server's own complaint would be printed.
                with contextlib.suppress(ConnectionError, TimeoutError):
                    super().handle_one_request()

            def log_message(self, *_: Any) -> None:
                pass

            def _hand_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                fault = proxy._fault(self)
                if fault is Fault.LOST_REQUEST:
                    self.close_connection = True
                    return
                if fault in _STATUS:
                    self._answer(_STATUS[fault], [], b"")
                    return
                status, headers, answer = proxy._asked(self, body)
                if fault is Fault.LOST_ANSWER:
                    self.close_connection = True
                    return
                if fault is Fault.NO_CONDITION and status == 412:
                    status, headers, answer = 200, [("ETag", '"0"')], b""
                self._answer(status, headers, answer)

            def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
                self.send_response_only(status)
                told = {name.lower() for name, _ in headers}
                for name, value in headers:
                    if name.lower() not in ("transfer-encoding", "connection"):
                        self.send_header(name, value)
                if "content-length" not in told:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _hand_on

        return Handler

    def _fault(self, handler: BaseHTTPRequestHandler) -> Fault:
        conditional = handler.headers.get("If-None-Match") == "*"
        with self._lock:
            number = len(self.requests) + 1
            request = Request(number, handler.command, handler.path, conditional)
            self.requests.append(request)
        return self.rule(request)

    def _asked(
        self, handler: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        upstream = http.client.HTTPConnection("127.0.0.1", self._upstream, timeout=30)
        try:
            # The host is part of what the client has signed.
            upstream.putrequest(
                handler.command, handler.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in handler.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders(body)
            answer = upstream.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            upstream.close()
