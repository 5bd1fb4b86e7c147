"""COPY in large pieces: nothing is lost at any cut, and nothing is left over for the next statement."""

from __future__ import annotations

import fcntl
import struct
import termios
from array import array
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SourceUnavailable
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.connection import QueryFailed, Session, connect
from headrace.sources.postgres.copy_binary import TRAILER
from headrace.sources.postgres.copy_stream import append_copy_data, copy_out
from headrace.sources.postgres.decoder import ENGINES
from headrace.sources.postgres.transport import SocketTransport
from headrace.testing.postgres_server import PostgresServer
from tests.fixtures_postgres import name_of
from tests.waiting import until

ROWS = "COPY (SELECT g, repeat('x', g % 50) FROM generate_series(1, 20000) g) TO STDOUT (FORMAT binary)"

LEAD = b"in front of each"

Append = Callable[[bytearray, int, int, bytearray, int], int]


def appenders() -> list[Append]:
    found: list[Append] = [append_copy_data]
    if "native" in ENGINES:
        from headrace.sources.postgres import _native

        found.append(_native.append_copy_data)
    return found


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">I", len(body) + 4) + body


@given(
    bodies=st.lists(st.tuples(st.sampled_from([b"d", b"d", b"d", b"c"]), st.binary(max_size=20))),
    cut=st.integers(0, 40),
    skip=st.integers(0, 2),
    limit=st.integers(0, 60),
)
def test_both_engines_take_the_same_messages(
    bodies: list[tuple[bytes, bytes]], cut: int, skip: int, limit: int
) -> None:
    data = bytearray(b"".join(message(kind, body) for kind, body in bodies))
    start = sum(len(message(*body)) for body in bodies[:skip])
    end = max(start, len(data) - cut)
    outcomes = []
    for append in appenders():
        piece = bytearray(b"before")
        outcomes.append((append(data, start, end, piece, limit), bytes(piece)))
    expected, at = b"before", start
    for kind, body in bodies[skip:]:
        after = at + len(body) + 5
        if kind != b"d" or after > end or len(expected) >= limit:
            break
        expected, at = expected + body, after
    assert outcomes == [(at, expected)] * len(outcomes)


@pytest.mark.parametrize("size", [0, 3, 2**31, 2**32 - 1])
def test_a_length_that_cannot_be_is_left_for_an_error(size: int) -> None:
    data = bytearray(b"d" + struct.pack(">I", size) + bytes(30))
    for append in appenders():
        piece = bytearray()
        assert append(data, 0, len(data), piece, 100) == 0
        assert not piece


@pytest.fixture
def plain(database: str, postgres_server: PostgresServer) -> Iterator[Session]:
    # Over TCP a server may insist on TLS, which no socket of its machine has.
    url = postgres_server.socket_url(name_of(database))
    with connect(PostgresSource(url).settings) as session:
        assert not session.encrypted
        yield session


@pytest.mark.postgres
@pytest.mark.parametrize("engine", ENGINES)
def test_the_socket_gives_what_libpq_gives(
    plain: Session, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_DECODER", engine)
    by_socket = list(copy_out(plain, ROWS, 10_000, LEAD))
    assert plain.value("SELECT 1") == "1"
    plain.encrypted = True
    by_libpq = list(copy_out(plain, ROWS, 10_000, LEAD))
    assert by_socket == by_libpq
    assert len(by_socket) > 50
    first, *others = by_socket
    pieces = [first, *(piece.removeprefix(LEAD) for piece in others)]
    assert b"".join(pieces) == b"".join(copy_out(plain, ROWS, 10_000_000))
    assert all(piece.startswith(LEAD) for piece in others)
    assert all(10_000 <= len(piece) < 10_100 for piece in pieces[:-1])
    assert pieces[-1].endswith(TRAILER)


@pytest.mark.postgres
@pytest.mark.parametrize("encrypted", [False, True])
def test_a_lead_counts_for_no_row(plain: Session, encrypted: bool) -> None:
    """A piece of nothing but its lead would be followed by itself for ever."""
    plain.encrypted = encrypted
    pieces = list(copy_out(plain, "COPY (SELECT generate_series(1, 3)) TO STDOUT", 1, LEAD))
    assert pieces == [b"1\n", LEAD + b"2\n", LEAD + b"3\n"]


@pytest.mark.postgres
def test_much_is_left_to_gather_and_little_is_taken_at_once(
    plain: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered = 0

    def gather(_stream: SocketTransport) -> None:
        nonlocal gathered
        gathered += 1

    monkeypatch.setattr(SocketTransport, "gather", gather)
    pieces = copy_out(plain, ROWS, 10_000)
    size = len(next(pieces))
    until(lambda: waiting(plain.pgconn.socket) > 50_000, "much has come")
    size += sum(map(len, pieces))
    assert 0 < gathered <= size / 8_000
    gathered = 0
    assert list(copy_out(plain, "COPY (SELECT repeat('x', 5000)) TO STDOUT", 100_000))
    assert gathered == 0


def waiting(socket: int) -> int:
    """Return how many bytes a socket has for its reader."""
    count = array("i", [0])
    fcntl.ioctl(socket, termios.FIONREAD, count)
    return count[0]


@pytest.mark.postgres
def test_an_error_amid_the_rows_is_told_and_the_connection_goes_on(plain: Session) -> None:
    with pytest.raises(QueryFailed) as refused:
        list(
            copy_out(
                plain, "COPY (SELECT 1 / (5000 - g) FROM generate_series(1, 9000) g) TO STDOUT", 100
            )
        )
    assert refused.value.sqlstate == "22012"
    assert plain.value("SELECT 1") == "1"
    with pytest.raises(QueryFailed) as refused:
        list(copy_out(plain, "COPY (SELECT 1) TO STDOUT; COPY (SELECT 2) TO STDOUT", 100))
    assert refused.value.sqlstate == "42601"
    assert plain.value("SELECT 2") == "2"


@pytest.mark.postgres
def test_a_copy_that_is_left_takes_its_connection_along(plain: Session) -> None:
    pieces = copy_out(plain, ROWS, 1_000)
    next(pieces)
    pieces.close()
    assert not plain.usable


@pytest.mark.postgres
def test_a_server_that_goes_amid_the_rows_is_unavailable(database: str, plain: Session) -> None:
    process = plain.value("SELECT pg_backend_pid()")
    long = "COPY (SELECT repeat('x', 1000) FROM generate_series(1, 1000000)) TO STDOUT"
    pieces = copy_out(plain, long, 1_000)
    next(pieces)
    with connect(PostgresSource(database).settings) as other:
        other.run(f"SELECT pg_terminate_backend({process})")
    with pytest.raises(SourceUnavailable):
        list(pieces)
