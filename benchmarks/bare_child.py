"""``python -m benchmarks.bare_child URL SLOT PUBLICATION FOLDER``: receives a stream and keeps its bytes, nothing else.

What any client must do that keeps what it received: read the socket, write, sync, and tell readers how far it is. No
byte is looked at but to find the end. What we take beyond this is ours; the rest is the kernel's, the disk's and the
server's.

``--until LSN`` ends when the server's log was received up to there, and syncs beside the reading, as our capture does
when much comes; else each read is synced before readers are told, until the standard input closes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import os
import select
import socket
import struct
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from psycopg import pq

from headrace.changelog.bell import Bell
from headrace.sources.postgres.intake import PROMPT_READS, PROMPT_S, gather_s
from headrace.sources.postgres.lsn import parse_lsn

__all__ = ["BELL_AT", "LOG", "TAIL"]

LOG, TAIL = "log", "tail"
"""The bytes, and a page that begins with how many of them are durable."""
BELL_AT = 64
"""Where that page has the bell by which readers are woken."""

_OPTIONS = "proto_version '2', streaming 'on', publication_names '\"{}\"', messages 'true'"
_KEEPALIVE = b"d\0\0\0\x16k"
_SYNC_EACH_S = 0.05
_ROOM = 1 << 20
_LOOKED_AT = 400


class _Stream:
    """A replication connection in copy-both mode."""

    def __init__(self, url: str, slot: str, publication: str) -> None:
        sign = "&" if "?" in url else "?"
        self._connection = pq.PGconn.connect(f"{url}{sign}replication=database".encode())
        if self._connection.status != pq.ConnStatus.OK:
            raise SystemExit(self._connection.error_message.decode())
        self.socket = socket.socket(fileno=os.dup(self._connection.socket))
        self.socket.setblocking(True)
        options = _OPTIONS.format(publication)
        text = f'START_REPLICATION SLOT "{slot}" LOGICAL 0/0 ({options})'.encode() + b"\0"
        self.socket.sendall(b"Q" + struct.pack(">I", len(text) + 4) + text)


def _until(stream: _Stream, folder: Path, end: int) -> None:
    """Receive up to an end, as fast as it comes."""
    view = memoryview(bytearray(_ROOM))
    syncing: Future[None] | None = None
    pause_s, prompt = gather_s(stream.socket), PROMPT_READS
    poller = select.poll()
    poller.register(stream.socket.fileno(), select.POLLIN)
    at, synced_at = 0, time.perf_counter()
    wall, cpu = time.perf_counter(), time.process_time()
    with (folder / LOG).open("wb", buffering=0) as file, ThreadPoolExecutor(1) as beside:
        while True:
            if not poller.poll(0):
                prompt = PROMPT_READS
            size = stream.socket.recv_into(view)
            os.pwrite(file.fileno(), view[:size], at)
            at += size
            if not size or _ends(bytes(view[max(0, size - _LOOKED_AT) : size]), end):
                break
            if time.perf_counter() > synced_at + _SYNC_EACH_S and (not syncing or syncing.done()):
                synced_at = time.perf_counter()
                syncing = beside.submit(os.fdatasync, file.fileno())
            time.sleep(PROMPT_S if prompt > 0 else pause_s)
            prompt -= 1
        os.fdatasync(file.fileno())
    said = {"run_s": time.perf_counter() - wall, "run_cpu_s": time.process_time() - cpu}
    print(json.dumps(said), flush=True)


def _ends(last: bytes, end: int) -> bool:
    """Return whether the last bytes of a read hold a keepalive from behind the end."""
    place = last.rfind(_KEEPALIVE)
    if place < 0 or len(last) < place + 14:
        return False
    return bool(struct.unpack_from(">Q", last, place + 6)[0] >= end)


def _publish(stream: _Stream, folder: Path) -> None:
    """Receive, sync, tell."""
    view = memoryview(bytearray(_ROOM))
    log, tail = (os.open(folder / name, os.O_RDWR | os.O_CREAT) for name in (LOG, TAIL))
    os.ftruncate(tail, mmap.PAGESIZE)
    page, at = mmap.mmap(tail, mmap.PAGESIZE), 0
    bell = Bell(page, BELL_AT)
    poller = select.poll()
    for file in (stream.socket.fileno(), 0):
        poller.register(file, select.POLLIN | select.POLLHUP)
    print("streaming", flush=True)
    while True:
        ready = {file for file, _ in poller.poll()}
        if stream.socket.fileno() in ready:
            size = stream.socket.recv_into(view)
            os.pwrite(log, view[:size], at)
            os.fdatasync(log)
            at += size
            page[:8] = struct.pack("<Q", at)
            bell.ring()
        elif 0 in ready:
            break
    print("{}", flush=True)


def main() -> int:
    """Receive until the end."""
    parser = argparse.ArgumentParser(prog="bare_child")
    parser.add_argument("url")
    parser.add_argument("slot")
    parser.add_argument("publication")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--until", type=parse_lsn)
    given = parser.parse_args()
    stream = _Stream(given.url, given.slot, given.publication)
    if given.until:
        _until(stream, given.folder, given.until)
    else:
        with contextlib.suppress(BrokenPipeError):
            _publish(stream, given.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
