"""A line between a client and a real server that breaks, damages bytes or falls silent where a test says so."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

__all__ = ["SOUND", "Damage", "FaultyLine"]

_PIECE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Damage:
    """What becomes of the bytes that a server sends over one connection.

    Attributes:
        cut_at: the connection breaks after so many bytes.
        flip_at: the lowest bit of this byte is another one.
        silent_at: nothing more comes after so many bytes, and the connection stays.
    """

    cut_at: int | None = None
    flip_at: int | None = None
    silent_at: int | None = None


SOUND = Damage()


class FaultyLine:
    """Listens on this machine and hands everything on to a server.

    Args:
        url: of the server.

    Attributes:
        rule: says what happens to a connection, by its number from 1; may change at any time.
        connections: so far.
        received: bytes that clients sent.
    """

    def __init__(self, url: str) -> None:
        self.lead_to(url)
        self.rule: Callable[[int], Damage] = lambda _: SOUND
        self.connections = 0
        self.received = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[tuple[socket.socket, socket.socket]] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def lead_to(self, url: str) -> None:
        """Hand the connections to come on to this server."""
        parts = urlsplit(url)
        self._server = (parts.hostname or "", parts.port or 80)

    def cut(self) -> int:
        """Break every connection that is open, and return how many there were."""
        held, self._open = self._open, []
        return sum(_end(client) | _end(server) for client, server in held)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _end(self._listening)
        self._thread.join()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            damage = self.rule(self.connections)
            try:
                server = socket.create_connection(self._server)
            except OSError:
                client.close()
                continue
            self._open.append((client, server))
            for work in ((self._up, client, server), (self._down, client, server, damage)):
                threading.Thread(target=work[0], args=work[1:], daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(_PIECE_BYTES):
                self.received += len(data)
                server.sendall(data)
        _end(server)

    def _down(self, client: socket.socket, server: socket.socket, damage: Damage) -> None:
        at = 0
        with contextlib.suppress(OSError):
            while data := server.recv(_PIECE_BYTES):
                piece = bytearray(data)
                if damage.flip_at is not None and at <= damage.flip_at < at + len(piece):
                    piece[damage.flip_at - at] ^= 1
                if damage.silent_at is not None:
                    piece = piece[: max(0, damage.silent_at - at)]
                cut = damage.cut_at is not None and at + len(piece) >= damage.cut_at
                if cut and damage.cut_at is not None:
                    piece = piece[: max(0, damage.cut_at - at)]
                client.sendall(piece)
                at += len(data)
                if cut:
                    break
        _end(client)
        _end(server)


def _end(held: socket.socket) -> bool:
    """Close a connection, and return whether it was open."""
    try:
        held.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False
    finally:
        held.close()
    return True
