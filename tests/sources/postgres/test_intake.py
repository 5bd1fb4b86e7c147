"""A socket that a thread of its own empties: every byte once and in order, whatever ends it."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from headrace.sources.postgres.decoder import ENGINES
from headrace.sources.postgres.intake import Intake, gather_s
from tests.waiting import until

pytestmark = pytest.mark.skipif(ENGINES[0] != "native", reason="installed without the C parts")

LIMIT_S = 30.0


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return two ends of a Unix socket; the second is read without blocking, as a stream's is."""
    writer, reader = socket.socketpair()
    reader.setblocking(False)
    with writer, reader:
        yield writer, reader


@pytest.fixture
def intake(ends: tuple[socket.socket, socket.socket]) -> Iterator[Intake]:
    found = Intake(ends[1])
    yield found
    found.close()


def taken(intake: Intake, count: int, sizes: random.Random) -> bytes:
    """Take ``count`` bytes in pieces of random room."""
    found, deadline = bytearray(), time.monotonic() + LIMIT_S
    while len(found) < count:
        assert time.monotonic() < deadline
        room = bytearray(sizes.choice((1, 7, 1_000, 1 << 20)))
        with memoryview(room) as view:
            size = intake.read_into(view)
        found += room[:size]
    return bytes(found)


def ended(intake: Intake) -> None:
    """Wait until the thread has ended by itself."""
    deadline = time.monotonic() + LIMIT_S
    while intake.running:
        assert time.monotonic() < deadline


def readers() -> set[threading.Thread]:
    """Return the threads that empty sockets; other parts of this process start and end threads as they like."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("headrace-intake")}


@pytest.mark.parametrize("seed", range(4))
def test_every_byte_comes_once_and_in_order(
    ends: tuple[socket.socket, socket.socket], intake: Intake, seed: int
) -> None:
    """More than the ring holds, so that it wraps, and is full while nobody takes."""
    sizes = random.Random(seed)
    sent = sizes.randbytes(12 << 20)
    intake.begin()
    sender = threading.Thread(target=ends[0].sendall, args=(sent,))
    sender.start()
    assert taken(intake, len(sent), sizes) == sent
    sender.join()


def test_it_ends_when_nothing_comes_and_begins_again(
    ends: tuple[socket.socket, socket.socket], intake: Intake
) -> None:
    sizes = random.Random(1)
    for sent in (b"first", b"second"):
        ends[0].sendall(sent)
        intake.begin()
        assert taken(intake, len(sent), sizes) == sent
        ended(intake)
    assert intake.read_into(memoryview(bytearray(8))) == 0


def test_what_came_before_the_other_end_closed_is_taken_first(
    ends: tuple[socket.socket, socket.socket], intake: Intake
) -> None:
    ends[0].sendall(b"the last words")
    ends[0].close()
    intake.begin()
    assert taken(intake, 14, random.Random(1)) == b"the last words"
    ended(intake)
    with pytest.raises(BrokenPipeError):
        intake.read_into(memoryview(bytearray(8)))


def test_a_socket_that_fails_says_why(ends: tuple[socket.socket, socket.socket]) -> None:
    listener = socket.socket()
    listener.setblocking(False)
    with listener:
        intake = Intake(listener)
        intake.begin()
        ended(intake)
        with pytest.raises(OSError) as raised:
            intake.read_into(memoryview(bytearray(8)))
        intake.close()
    assert raised.value.errno == errno.ENOTCONN


def test_it_can_be_closed_while_its_ring_is_full_and_nobody_takes(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    before = readers()
    intake = Intake(ends[1])
    intake.begin()
    ends[0].settimeout(0.2)
    with pytest.raises(TimeoutError):
        ends[0].sendall(bytes(16 << 20))
    began = time.monotonic()
    intake.close()
    assert time.monotonic() - began < 5
    assert readers() == before


def test_a_tcp_socket_is_left_alone_for_longer_than_a_unix_socket(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    with socket.socket(socket.AF_INET) as four, socket.socket(socket.AF_INET6) as six:
        assert gather_s(ends[1]) < gather_s(four) == gather_s(six) < 0.001


def test_it_ends_when_little_comes_and_what_comes_then_stays_in_the_socket(
    ends: tuple[socket.socket, socket.socket], intake: Intake
) -> None:
    """Else every change of a steady trickle would wait as one of many does."""
    sent = found = b""
    intake.begin()
    with memoryview(bytearray(64)) as view:
        while intake.running:
            assert len(sent) < 250
            ends[0].send(bytes([len(sent)]))
            sent += bytes([len(sent)])
            found += bytes(view[: intake.read_into(view, busy=False)])
    ends[0].send(b"!")
    assert found + ends[1].recv(300) == sent + b"!"


def test_at_first_and_behind_each_lull_it_reads_promptly(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """By that the server's kernel learns to join what it sends. A read that gathers takes an hour here."""
    from headrace.sources.postgres._native import NativeIntake

    ring, hour_us = NativeIntake(ends[1].fileno(), 1 << 16), 3_600_000_000
    ring.begin()
    ends[0].send(b"x")
    thread = threading.Thread(target=ring.run, args=(hour_us, 1_000, 2, 60_000, False), daemon=True)
    thread.start()
    with memoryview(bytearray(8)) as view:
        for _ in range(5):
            until(lambda: ring.take(view, 1, 0) == 1, "a byte behind a lull")
            ends[0].send(b"x")
    ends[0].close()
    thread.join(LIMIT_S)
    assert not thread.is_alive()


class _Ring:
    """Always gives so many bytes."""

    running, error, left = True, 0, 0

    def __init__(self, size: int) -> None:
        self.size = size

    def begin(self) -> None:
        """Nothing runs."""

    def stop(self) -> None:
        """Nothing runs."""

    def run(
        self, gather_us: int, prompt_us: int, prompt_reads: int, quiet_ms: int, follow: bool
    ) -> None:
        """Nothing runs."""

    def take(self, to: memoryview, least: int, wait_us: int) -> int:
        return self.size

    def leave(self) -> None:
        self.left += 1


@pytest.mark.parametrize(
    ("size", "busy", "left"), [(100, False, True), (100, True, False), (100_000, False, False)]
)
def test_only_a_trickle_that_is_urgent_ends_it(
    intake: Intake, size: int, busy: bool, left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = _Ring(size)
    monkeypatch.setattr(intake, "_ring", ring)
    intake.begin()
    for _ in range(3):
        intake.read_into(memoryview(bytearray(8)), busy=busy)
    assert not ring.left
    for _ in range(3):
        intake.read_into(memoryview(bytearray(8)), busy=busy)
    assert bool(ring.left) is left


@pytest.fixture
def two() -> Iterator[set[int]]:
    """Let this thread, and those that it begins, have two processors."""
    allowed = os.sched_getaffinity(0) if sys.platform == "linux" else set()
    if len(allowed) < 2:
        pytest.skip("needs two processors")
    os.sched_setaffinity(0, sorted(allowed)[:2])
    yield os.sched_getaffinity(0)
    os.sched_setaffinity(0, allowed)


def stays_on(intake: Intake, sender: socket.socket) -> set[int]:
    """Let a byte come, and return the processors that the thread of the socket may have while it runs."""
    if not intake.running:
        intake.begin()
    sender.send(b"x")
    with memoryview(bytearray(8)) as view:
        until(lambda: intake.read_into(view), "the byte", pause_s=0)
    return processors_of_reader()


def processors_of_reader() -> set[int]:
    (thread,) = readers()
    return os.sched_getaffinity(thread.native_id or 0)


def test_one_of_two_processors_is_left_to_a_server_of_this_machine(two: set[int]) -> None:
    writer, reader = socket.socketpair()
    reader.setblocking(False)
    with writer, reader, contextlib.closing(Intake(reader)) as intake:
        stays_on(intake, writer)
        for processor in (*two, *two):
            os.sched_setaffinity(0, {processor})
            until(lambda: stays_on(intake, writer) == {processor}, "it follows", pause_s=0)  # noqa: B023
        ended(intake)
        until(lambda: processors_of_reader() == two, "it may have both again")


def test_a_server_elsewhere_is_read_on_any_processor(two: set[int]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        writer = socket.create_connection(server.getsockname())
        reader, _ = server.accept()
    reader.setblocking(False)
    with writer, reader, contextlib.closing(Intake(reader)) as intake:
        for _ in range(20):
            assert stays_on(intake, writer) == two
