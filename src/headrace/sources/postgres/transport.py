"""How the bytes of a replication stream come in and go out.

libpq connects, encrypts and authenticates. Where nothing is encrypted, the stream itself is then read straight from the
socket in large pieces (`SocketTransport`); else libpq hands over one message at a time (`LibpqTransport`).
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

import psycopg
from psycopg import pq

from headrace.errors import HeadraceError, SourceUnavailable
from headrace.sources.postgres.connection import Session, wait_socket
from headrace.sources.postgres.frames import FrameBuffer
from headrace.sources.postgres.intake import TCP_GATHER_S, gather_s, make_intake

__all__ = ["LibpqTransport", "Refused", "SocketTransport", "Transport", "error_fields", "transport"]

_SIZE = struct.Struct(">I")
_COPY_BOTH = b"W"
_READY = b"Z"

_TICK_S = 0.001


class Refused(Exception):
    """The server answered with an error.

    Attributes:
        sqlstate: the server's code.
        text: what it said.
    """

    def __init__(self, sqlstate: str, text: str) -> None:
        super().__init__(sqlstate, text)
        self.sqlstate = sqlstate
        self.text = text


class Transport(Protocol):
    """A connection in copy-both mode. Used from one thread.

    Attributes:
        frames: what has come in and is not decoded yet: kind, length and bytes of each message.
        lull: whether the last read waited some milliseconds, and nothing came.
    """

    frames: FrameBuffer
    lull: bool

    def start(self, sql: str) -> None:
        """Put the connection into copy-both mode.

        Raises:
            Refused: the server does not want to.
            SourceUnavailable: the connection is gone.
        """
        ...

    def read(self, *, busy: bool = False) -> int:
        """Add what is there to ``frames``; return its bytes.

        Args:
            busy: much comes, and none of it is urgent: leave it a moment to gather. Else nothing is waited for.

        Raises:
            SourceUnavailable: the connection is gone.
            Refused: the server ended the stream with an error.
        """
        ...

    def send(self, data: bytes) -> None:
        """Send one CopyData message."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Return when there is something to read, or after the time."""
        ...

    def close(self) -> None:
        """Let go of what is its own; the session closes the connection."""
        ...


def transport(
    session: Session, on_notice: Callable[[str, str], None], timeout_s: float
) -> Transport:
    """Return the fastest transport that the connection allows.

    Args:
        session: a replication connection.
        on_notice: told of the server's warnings: code and text.
        timeout_s: limit for an answer, and for what we send.
    """
    kind = LibpqTransport if session.encrypted else SocketTransport
    return kind(session, on_notice, timeout_s)


class _Common:
    def __init__(
        self, session: Session, on_notice: Callable[[str, str], None], timeout_s: float
    ) -> None:
        self.frames = FrameBuffer()
        self.lull = False
        self._session = session
        self._on_notice = on_notice
        self._timeout_s = timeout_s
        self._poller = select.poll()
        self._poller.register(session.pgconn.socket, select.POLLIN)

    def wait(self, timeout_s: float) -> None:
        """See `Transport`."""
        if self._is_taken_in():
            # The socket is empty all the time; what was read from it is asked for after a tick.
            time.sleep(max(0.0, min(timeout_s, _TICK_S)))
        elif timeout_s < _TICK_S:
            # Polling counts whole milliseconds and rounds up, which is longer than a block waits.
            time.sleep(max(0.0, timeout_s))
        else:
            self._poller.poll(timeout_s * 1000)

    def _is_taken_in(self) -> bool:
        """Whether somebody else empties the socket."""
        return False

    def _silent(self) -> SourceUnavailable:
        return SourceUnavailable(
            "PostgreSQL does not answer, or does not take what we send.",
            next_step="look at the load of the server and the network; it is tried again.",
        )


class SocketTransport(_Common):
    """Reads and writes the socket itself; libpq only keeps it open."""

    def __init__(
        self, session: Session, on_notice: Callable[[str, str], None], timeout_s: float
    ) -> None:
        super().__init__(session, on_notice, timeout_s)
        self._socket = socket.socket(fileno=os.dup(session.pgconn.socket))
        self._socket.setblocking(False)
        self._intake = make_intake(self._socket)
        self._gather_s = gather_s(self._socket)

    def start(self, sql: str) -> None:
        """See `Transport`."""
        text = sql.encode() + b"\0"
        self.write(b"Q" + _SIZE.pack(len(text) + 4) + text)
        deadline = time.monotonic() + self._timeout_s
        refused: Refused | None = None
        while True:
            kind, data = self.message(deadline)
            if kind == _COPY_BOTH:
                if self._intake is not None:
                    # What waited for us comes at once. Over TCP its first moments also decide for a long time: a
                    # receiver that answers each message at once gets every later one as a packet of its own.
                    self._intake.begin()
                return
            if kind == b"E":
                refused = Refused(*error_fields(data))
            elif kind == b"N":
                self._on_notice(*error_fields(data))
            elif kind == _READY:
                raise refused or Refused("", "no stream, and no reason given")

    def message(self, deadline: float) -> tuple[bytes, bytes]:
        """Return kind and bytes of the next message, which may be waited for.

        Raises:
            SourceUnavailable: none came in time, or the connection is gone.
        """
        frames = self.frames
        while True:
            held = frames.end - frames.start
            if held >= 5:
                size = _SIZE.unpack_from(frames.data, frames.start + 1)[0] + 1
                if held >= size:
                    at, frames.start = frames.start, frames.start + size
                    return bytes(frames.data[at : at + 1]), bytes(frames.data[at + 5 : at + size])
            if not self.read():
                if time.monotonic() > deadline:
                    raise self._silent()
                self.wait(deadline - time.monotonic())

    def read(self, *, busy: bool = False) -> int:
        """See `Transport`."""
        if self._is_taken_in():
            size = self.frames.fill(partial(self._take_into, busy=busy))
            self.lull = not size
            return size
        self.lull = False
        if busy and self._intake is None:
            self.gather()
        size = self.frames.fill(self._read_into)
        if busy and size and self._intake is not None:
            self._intake.begin()
        return size

    def gather(self) -> None:
        """Leave what comes a moment, so that the next read finds much."""
        time.sleep(self._gather_s)

    def _is_taken_in(self) -> bool:
        return self._intake is not None and self._intake.running

    def _take_into(self, view: memoryview, busy: bool) -> int:
        assert self._intake is not None
        try:
            return self._intake.read_into(view, busy=busy)
        except BrokenPipeError as error:
            raise self._session.lost("the server closed it") from error
        except OSError as error:
            raise self._session.lost(os.strerror(error.errno or 0)) from error

    def _read_into(self, view: memoryview) -> int:
        try:
            size = self._socket.recv_into(view)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._session.lost(os.strerror(error.errno or 0)) from error
        if not size:
            raise self._session.lost("the server closed it")
        return size

    def send(self, data: bytes) -> None:
        """See `Transport`."""
        self.write(b"d" + _SIZE.pack(len(data) + 4) + data)

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        deadline = time.monotonic() + self._timeout_s
        while data:
            try:
                data = data[self._socket.send(data) :]
            except BlockingIOError:
                if not wait_socket(self._socket.fileno(), deadline, writing=True):
                    raise self._silent() from None
            except OSError as error:
                raise self._session.lost(os.strerror(error.errno or 0)) from error

    def close(self) -> None:
        """Let the socket go; the session closes the connection."""
        if self._intake is not None:
            self._intake.close()
        self._socket.close()


class LibpqTransport(_Common):
    """Reads messages through libpq, which decrypts them."""

    def __init__(
        self, session: Session, on_notice: Callable[[str, str], None], timeout_s: float
    ) -> None:
        super().__init__(session, on_notice, timeout_s)
        session.pgconn.notice_handler = self._notice

    def start(self, sql: str) -> None:
        """See `Transport`."""
        from headrace.sources.postgres.connection import QueryFailed

        try:
            result = self._session.result(sql)
        except QueryFailed as error:
            raise Refused(error.sqlstate, error.message) from error
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise Refused("", "no stream, and no reason given")

    def read(self, *, busy: bool = False) -> int:
        """See `Transport`."""
        if busy:
            time.sleep(TCP_GATHER_S)
        added, connection = 0, self._session.pgconn
        fresh = False
        try:
            while added < 1 << 20:
                size, data = connection.get_copy_data(1)
                if size > 0:
                    self.frames.add(b"d" + _SIZE.pack(size + 4), bytes(data))
                    added += size + 5
                    fresh = False
                elif size < 0:
                    raise self._ended()
                elif fresh:
                    break
                else:
                    connection.consume_input()
                    fresh = True
        except psycopg.Error as error:
            raise self._session.lost() from error
        return added

    def _ended(self) -> HeadraceError | Refused:
        """Return why the server ended the stream."""
        result = self._session.pgconn.get_result()
        if result is None or result.status != pq.ExecStatus.FATAL_ERROR:
            return self._session.lost("the server ended the stream")
        state = result.error_field(pq.DiagnosticField.SQLSTATE) or b""
        text = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b""
        return Refused(state.decode(), text.decode("utf-8", "replace"))

    def _notice(self, notice: pq.abc.PGresult) -> None:
        state = notice.error_field(pq.DiagnosticField.SQLSTATE) or b""
        text = notice.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b""
        self._on_notice(state.decode(), text.decode("utf-8", "replace"))

    def send(self, data: bytes) -> None:
        """See `Transport`."""
        try:
            self._session.pgconn.put_copy_data(data)
            self._session.flush(time.monotonic() + self._timeout_s)
        except psycopg.Error as error:
            raise self._session.lost() from error

    def close(self) -> None:
        """Nothing of its own to let go."""


def error_fields(data: bytes) -> tuple[str, str]:
    """Return code and text of an error or a notice."""
    fields: dict[str, str] = {}
    for part in data.split(b"\0"):
        if part:
            fields.setdefault(chr(part[0]), part[1:].decode("utf-8", "replace"))
    return fields.get("C", ""), fields.get("M", "")
