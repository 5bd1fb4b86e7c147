"""What a COPY … TO STDOUT sends, in large pieces.

Where nothing is encrypted it is asked for and read on the socket itself, many rows with each step of Python: one row at
a time takes more of the processor than decoding does, and holds up the thread that reads the log. Else libpq hands
over message by message. libpq is idle meanwhile, and knows no more of it than that a transaction is open.

Format: https://www.postgresql.org/docs/current/protocol-message-formats.html.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Generator

import psycopg
from psycopg import pq

from headrace.errors import ProtocolError
from headrace.sources.postgres.connection import LONGEST_S, Session, wait_socket
from headrace.sources.postgres.decoder import engine
from headrace.sources.postgres.transport import SocketTransport, error_fields

__all__ = ["append_copy_data", "copy_out"]

_HEAD = struct.Struct(">cI")
_LENGTH = struct.Struct(">I")
_DATA = ord("d")
_MUCH = 8_000
"""Bytes of one read behind which more comes: a server sends 8 KiB at a time. Who reads each by itself wakes for some
hundred rows, and takes the processor from the server that selects the next: a tenth of a table's copy."""
_SAYS_NOTHING = b"12HcCNSA"
"""Parsed, bound, copy begins, copy ends, complete, and what a server may say at any time."""

_Append = Callable[[bytearray, int, int, bytearray, int], int]


def copy_out(
    session: Session, sql: str, limit: int, lead: bytes = b""
) -> Generator[bytearray, None, None]:
    """Run one COPY … TO STDOUT and yield what it sends; no time limit.

    Nothing else runs on the connection until the last piece was taken; one that is left before that is closed. The
    server takes one statement only, whatever stands in it.

    Args:
        session: a connection on which nothing runs.
        sql: the statement.
        limit: a piece ends with the message (for rows: the row) with which it has so many bytes of them.
        lead: put in front of each piece but the first.

    Raises:
        QueryFailed: the server refused it, at its start or in the middle.
        SourceUnavailable: the connection is gone.
        ProtocolError: what comes is no answer to it.
    """
    read = _by_libpq if session.encrypted else _plain
    return read(session, sql, limit, lead)


def _by_libpq(
    session: Session, sql: str, limit: int, lead: bytes
) -> Generator[bytearray, None, None]:
    session.result(sql, timeout_s=float("inf"), single=True)
    deadline = time.monotonic() + LONGEST_S
    connection = session.pgconn
    piece, empty = bytearray(), 0
    try:
        while True:
            size, data = connection.get_copy_data(1)
            if size > 0:
                piece += data
                if len(piece) >= empty + limit:
                    yield piece
                    piece, empty = bytearray(lead), len(lead)
            elif size == 0:
                wait_socket(connection.socket, deadline)
                connection.consume_input()
            else:
                break
        result = session.receive(deadline)
    except psycopg.Error as error:
        raise session.lost() from error
    if result.status != pq.ExecStatus.COMMAND_OK:
        raise session.failure(result, sql)
    if len(piece) > empty:
        yield piece


def _plain(session: Session, sql: str, limit: int, lead: bytes) -> Generator[bytearray, None, None]:
    stream = SocketTransport(session, lambda _code, _text: None, LONGEST_S)
    refused: tuple[str, str] | None = None
    ended = False
    came = 0
    piece, empty = bytearray(), 0
    append = _append()
    frames = stream.frames
    try:
        stream.write(_extended_query(sql))
        while not ended:
            full = empty + limit
            frames.start = append(frames.data, frames.start, frames.end, piece, full)
            if len(piece) >= full:
                yield piece
                piece, empty = bytearray(lead), len(lead)
                continue
            if came >= _MUCH:
                stream.gather()
            kind, data = stream.message(time.monotonic() + LONGEST_S)
            came = len(data) + frames.end - frames.start
            if kind == b"d":
                piece += data
            elif kind == b"E":
                refused = error_fields(data)
            elif kind == b"Z":
                ended = True
            elif kind not in _SAYS_NOTHING:
                raise ProtocolError(
                    f"A COPY is answered by a message {kind!r} of {len(data)} bytes.",
                    next_step="report it with the server's version; nothing was taken from it.",
                )
    finally:
        stream.close()
        if not ended:
            # Rows are still on their way, which libpq would take for answers to the next statement.
            session.close()
    if refused is not None:
        raise session.refused(*refused, sql)
    if len(piece) > empty:
        yield piece


def _extended_query(sql: str) -> bytes:
    """Return the messages that run one statement: parse, bind, execute, and the sync that ends them."""
    none = struct.pack(">h", 0)
    messages = (
        (b"P", b"\0" + sql.encode() + b"\0" + none),
        (b"B", b"\0\0" + none * 3),
        (b"E", b"\0" + _LENGTH.pack(0)),
        (b"S", b""),
    )
    return b"".join(_HEAD.pack(kind, len(body) + 4) + body for kind, body in messages)


def _append() -> _Append:
    if engine() == "native":
        from headrace.sources.postgres import _native

        native: _Append = _native.append_copy_data
        return native
    return append_copy_data


def append_copy_data(data: bytearray, start: int, end: int, piece: bytearray, limit: int) -> int:
    """Add the rows of whole messages to a piece.

    Args:
        data: messages.
        start: where the first of them begins.
        end: where they end, maybe amid one.
        piece: what is added to.
        limit: nothing is added any more once the piece has so many bytes.

    Returns:
        where the first message begins that was not taken: of another kind, broken, or not whole.
    """
    while len(piece) < limit and end - start >= 5 and data[start] == _DATA:
        size = _LENGTH.unpack_from(data, start + 1)[0]
        if size < 4 or end - start - 1 < size:
            break
        piece += memoryview(data)[start + 5 : start + 1 + size]
        start += 1 + size
    return start
