"""Readers that take nothing, or nothing for a long time: cut, continued, and nobody else's concern."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headrace.changelog import ChangeLogSettings, ChangeLogWriter
from headrace.testing.relay import served
from tests.changelog.windows import scns, synced, window
from tests.relay.server.asking import ask, stream
from tests.requirements import req
from tests.waiting import until

MIB = 2**20
IDLE_BYTES = 60_000
"""Most memory that an idle reader may cost; the paper's point is that it does not grow with what it has missed."""


@pytest.fixture
def full(tmp_path: Path):
    """A log of about 40 MiB."""
    with ChangeLogWriter.open(tmp_path, ChangeLogSettings(segment_bytes=8 * MIB)) as writer:
        synced(writer, *(window(scn, 100, text="x" * 2000) for scn in range(1, 101)))
        yield writer, tmp_path


@contextmanager
def stalled(url: str, path: str):
    """A reader with little room that asks and then takes nothing."""
    parts = urlsplit(url)
    taken = socket.socket()
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        taken.connect((parts.hostname, parts.port))
        taken.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        yield taken
    finally:
        taken.close()


def counted(url: str, name: str) -> int:
    lines = ask(url, "/metrics").body.decode().splitlines()
    found = [line for line in lines if line.startswith(f"headrace_relay_{name}{{")]
    return sum(int(float(line.rpartition(" ")[2])) for line in found)


def kept_for(reader: socket.socket) -> int:
    """Return how many bytes the kernel keeps on the relay's side for a reader on this machine."""
    port = reader.getsockname()[1]
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    (queues,) = (line[4] for line in lines if int(line[2].rpartition(":")[2], 16) == port)
    return int(queues.partition(":")[0], 16)


@req("D62")
def test_little_is_kept_by_the_kernel_for_a_reader_on_the_same_machine(full):
    """As much as stays in the processor's caches; it would be megabytes for each."""
    _, folder = full
    with (
        served({"shop": folder}, send_timeout_s=60.0) as url,
        stalled(url, "/stream?source=shop&after=0") as reader,
    ):
        kept = [-1]

        def is_full() -> bool:
            kept.append(kept_for(reader))
            return 0 < kept[-1] == kept[-2]

        until(is_full, "no more is taken for it")
        assert 100_000 < kept[-1] < MIB


@req("D62", "D13")
def test_a_reader_that_takes_nothing_is_cut_goes_on_and_delays_nobody(full):
    writer, folder = full
    with served({"shop": folder}, send_timeout_s=1.0) as url:
        with stalled(url, "/stream?source=shop&after=0") as reader:
            waits = []
            with stream(url, after=100) as frames:
                for scn in range(101, 160):
                    synced(writer, window(scn))
                    begun = time.monotonic()
                    assert scns(frames.until(scn)) == [scn]
                    waits.append(time.monotonic() - begun)
            assert sorted(waits)[len(waits) // 2] < 0.25
            until(lambda: counted(url, "readers_cut_total") == 1, "the reader is cut")
            until(lambda: counted(url, "streams") == 0, "nothing is kept of it")
            reader.settimeout(20)
            taken = b""
            with contextlib.suppress(ConnectionResetError):
                while more := reader.recv(MIB):
                    taken = (taken + more)[-100:]
            # On purpose it would have ended with a note.
            assert b"HRNT" not in taken
        with stream(url, after=0, mode="pull", max_bytes=200 * MIB) as frames:
            assert scns(frames.blocks()) == list(range(1, 160))


@req("D62")
def test_a_slow_reader_that_takes_something_is_not_cut(full):
    _, folder = full
    path = "/stream?source=shop&after=0"
    with served({"shop": folder}, send_timeout_s=2.0) as url, stalled(url, path) as reader:
        until(lambda: counted(url, "streams") == 1, "the stream is open")
        got, pause = 0, threading.Event()
        deadline = time.monotonic() + 6.0
        while time.monotonic() < deadline:
            got += len(reader.recv(65_536))
            pause.wait(0.05)
        # Three times the time-out, and far from the end all the time.
        assert 0 < got < 30 * MIB
        assert counted(url, "readers_cut_total") == 0
        assert counted(url, "streams") == 1


def test_many_readers_at_different_places_all_get_everything(full):
    writer, folder = full
    with served({"shop": folder}) as url, ExitStack() as opened:
        readers = [opened.enter_context(stream(url, after=after)) for after in range(0, 100, 20)]
        got: dict[int, list[int]] = {}

        def read(number: int) -> None:
            got[number] = scns(readers[number].until(120))

        threads = [threading.Thread(target=read, args=(n,)) for n in range(len(readers))]
        for thread in threads:
            thread.start()
        for scn in range(101, 121):
            synced(writer, window(scn))
        for thread in threads:
            thread.join(60)
        assert got == {n: list(range(20 * n + 1, 121)) for n in range(len(readers))}


def resident_bytes() -> int:
    """Return the anonymous memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel does not say")


@req("D43")
def test_an_idle_reader_costs_little_whatever_passes_by(full):
    writer, folder = full
    readers = min(400, os.sysconf("SC_OPEN_MAX") // 4)
    with served({"shop": folder}, heartbeat_s=60.0) as url, ExitStack() as opened:
        with stream(url, after=100) as frames:
            synced(writer, window(101))
            frames.until(101)

        def add(count: int) -> None:
            for _ in range(count):
                reader = opened.enter_context(stalled(url, "/stream?source=shop&after=101"))
                assert reader.recv(1000).startswith(b"HTTP/1.1 200")

        add(50)
        before = resident_bytes()
        add(readers)
        until(lambda: counted(url, "streams") == readers + 50, "every reader is served")
        assert resident_bytes() - before < readers * IDLE_BYTES
        # What comes is sent to each, and held for none.
        sent = counted(url, "bytes_sent_total")
        synced(writer, *(window(scn) for scn in range(102, 110)))
        # As one block: so many small ones would cost more to send than they hold.
        until(
            lambda: counted(url, "bytes_sent_total") > sent + (readers + 50) * 1000,
            "all are served",
        )
        assert resident_bytes() - before < readers * IDLE_BYTES
