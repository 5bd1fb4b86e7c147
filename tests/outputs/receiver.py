"""A webhook that answers as a test tells it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Receiver", "receiving"]


class Receiver(ThreadingHTTPServer):
    """A server on a free port.

    Attributes:
        answers: to the next calls: a status, ``cut`` to hang up, ``sleep`` to say nothing for long; 200 behind them.
        calls: path, headers and body of each.
        taken: bodies that were answered with 200.
        connections: addresses that called.
        headers: of each answer.
        over: ends every sleep.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[int | str] = []
        self.calls: list[tuple[str, dict[str, str], bytes]] = []
        self.taken: list[dict[str, Any]] = []
        self.connections: set[Any] = set()
        self.headers: dict[str, str] = {}
        self.over = threading.Event()

    @property
    def url(self) -> str:
        """Where it listens; the query stands for a secret."""
        return f"http://127.0.0.1:{self.server_port}/hook?token=hidden-token"

    def said(self) -> list[dict[str, Any]]:
        """Return the body of each call."""
        return [json.loads(body) for _, _, body in self.calls]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.calls.append((self.path, headers, body))
        self.server.connections.add(self.client_address)
        answer = self.server.answers.pop(0) if self.server.answers else 200
        if isinstance(answer, str):
            if answer == "sleep":
                self.server.over.wait(30)
            self.close_connection = True
            return
        if answer == 200:
            self.server.taken.append(json.loads(body))
        self.send_response(answer)
        self.send_header("content-length", "2")
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Serve until the block ends."""
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join(10)
