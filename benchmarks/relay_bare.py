"""``python -m benchmarks.relay_bare serve FOLDER`` and ``… get ADDRESS``: a log's files through bare sockets.

What the kernel leaves to any relay and any consumer that checks what came: the server hands pieces of the mapped files
to whichever socket has room, the client takes them into the same memory again and again and computes their CRC while
they are in the cache. There is no request, no framing, nothing is decoded and nobody is called.
"""

from __future__ import annotations

import json
import mmap
import selectors
import socket
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
from zlib_ng.zlib_ng import crc32

from headrace.changelog.segment import list_segments

__all__ = ["serve", "take"]

_PIECE_BYTES = 2**20
_TAKEN_BYTES = 128 * 1024
_SENT_BYTES = 256 * 1024
"""On its way at once, as for a relay's reader on its machine."""


def serve(folder: Path) -> None:
    """Serve a log's files until the input ends."""
    views = []
    for name in list_segments(folder):
        with (folder / str(name)).open("rb") as file:
            views.append(memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)))
    listening = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_give, args=(listening, views), daemon=True).start()
    print(f"at tcp://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    sys.stdin.read()


def _give(listening: socket.socket, views: list[memoryview]) -> None:
    """Send everything to everybody who comes, side by side."""
    listening.setblocking(False)
    with selectors.DefaultSelector() as ready:
        ready.register(listening, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is listening:
                    taker = listening.accept()[0]
                    taker.setblocking(False)
                    taker.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENT_BYTES)
                    ready.register(taker, selectors.EVENT_WRITE, (taker, [0, 0]))
                    continue
                taker, place = key.data
                if not _sent_some(taker, place, views):
                    ready.unregister(taker)
                    taker.close()


def _sent_some(taker: socket.socket, place: list[int], views: list[memoryview]) -> bool:
    """Send the next piece; return whether there was one, and somebody to take it."""
    at, offset = place
    if at == len(views):
        return False
    try:
        sent = taker.send(views[at][offset : offset + _PIECE_BYTES])
    except OSError:
        return False
    place[:] = (at, offset + sent) if offset + sent < len(views[at]) else (at + 1, 0)
    return True


def get(address: str) -> None:
    """Take everything once, when a line comes, and say how much it was."""
    print("waiting", flush=True)
    sys.stdin.readline()
    began_ns = time.time_ns()
    size = take(address)
    said = {"bytes": size, "began_ns": began_ns, "ended_ns": time.time_ns()}
    print(json.dumps(said), flush=True)


def take(address: str) -> int:
    """Take everything once, and return how many bytes it was."""
    host, _, port = address.removeprefix("tcp://").partition(":")
    size = crc = 0
    memory = memoryview(pa.allocate_buffer(_TAKEN_BYTES)).cast("B")
    with socket.create_connection((host, int(port))) as server:
        while got := server.recv_into(memory):
            crc = crc32(memory[:got], crc)
            size += got
    return size


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(Path(sys.argv[2]))
    else:
        get(sys.argv[2])
