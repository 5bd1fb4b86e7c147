"""``python -m benchmarks.relay_idle HOST PORT COUNT``: readers that wait, as plain sockets: what does one cost?

Says ``holding N`` once N answers have begun, and how many of them heard a heartbeat when its input ends.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys

_REQUEST = "GET /stream?source=bench&after=newest HTTP/1.1\r\nHost: bench\r\n\r\n"
_AT_ONCE = 200


class Reader(asyncio.Protocol):
    """One that reads what comes."""

    def __init__(self) -> None:
        self.began: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.heard = 0

    def data_received(self, data: bytes) -> None:
        """Count answers and heartbeats."""
        if not self.began.done():
            self.began.set_result(data.startswith(b"HTTP/1.1 200"))
        self.heard += data.count(b"heartbeat")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Count it as refused if it never began."""
        if not self.began.done():
            self.began.set_result(False)


async def main() -> None:
    """Hold as many as are given."""
    host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    loop = asyncio.get_running_loop()
    readers: list[Reader] = []
    while len(readers) < count:
        pairs = [
            await loop.create_connection(Reader, host, port)
            for _ in range(min(_AT_ONCE, count - len(readers)))
        ]
        for transport, reader in pairs:
            assert isinstance(transport, asyncio.Transport)
            transport.write(_REQUEST.encode())
            readers.append(reader)
        await asyncio.gather(*(reader.began for _, reader in pairs))
    held = sum(reader.began.result() for reader in readers)
    print(f"holding {held}", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    print(
        json.dumps({"held": held, "heard": sum(reader.heard > 0 for reader in readers)}), flush=True
    )


if __name__ == "__main__":
    asyncio.run(main())
