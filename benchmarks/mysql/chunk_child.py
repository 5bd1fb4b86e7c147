"""``python -m benchmarks.mysql.chunk_child HOW URL TABLE``: a whole table into Arrow, dropped as it comes.

HOW is ``chunks`` (our reader, chunk after chunk behind the last key, each in a snapshot of its own), ``connectorx``
(one select), or ``drain`` (one select like ours, whose bytes are received and not looked at: what the server alone
takes). Prints what it took from the first connection on, without the start of Python; of chunks also how long they
waited for the server: between a question and its answer, and for rows.
"""

from __future__ import annotations

import sys

from headrace.replicator.lean import begin_lean, leave_to_stay

if "chunks" in sys.argv:
    # As the capture's own process begins: before anything imports numpy or pyarrow. Others are left as they are.
    begin_lean()

import argparse
import json
import struct
import time

from benchmarks.mysql.server import DATABASE
from benchmarks.mysql.waits import Waits
from headrace.model.schema import TableId
from headrace.sources.mysql import connection
from headrace.sources.mysql.chunks import MysqlChunkReader
from headrace.sources.mysql.packets import PacketReader
from headrace.sources.mysql.settings import MysqlSettings

_CHUNK_ROWS = 65_536
_PIECE = 1 << 18
_PREPARE, _EXECUTE = b"\x16", b"\x17"
# Bytes within which the description of columns ends, which ends as rows do.
_DESCRIBED = 4096


def chunks(url: str, table: str) -> int:
    """Read by key range, as a dump does."""
    reader, name, rows = MysqlChunkReader(MysqlSettings(url)), TableId(DATABASE, table), 0
    last, after = reader.upper_bound(name).key, None
    while last is not None and after != last:
        chunk = reader.read(name, after, last, _CHUNK_ROWS)
        rows += chunk.rows.num_rows
        if chunk.last_key is None:
            break
        after = chunk.last_key
    reader.close()
    return rows


def connectorx(url: str, table: str) -> int:
    """Read by one select."""
    import connectorx

    found = connectorx.read_sql(f"{url}{DATABASE}", f"SELECT * FROM {table}", return_type="arrow")
    return int(found.num_rows)


def drain(url: str, table: str) -> int:
    """Receive the rows of one select in the key's order, as our reader asks for them, and look at none."""
    session = connection.connect(MysqlSettings(url))
    session.widen()
    socket = session.socket()

    def received(command: bytes, least: int) -> bytes:
        socket.sendall(struct.pack("<I", len(command)) + command)
        piece, count, head, tail = memoryview(bytearray(_PIECE)), 0, b"", b""
        while True:
            got = socket.recv_into(piece)
            if not got:
                raise SystemExit("the server closed the connection")
            count += got
            head = head or bytes(piece[: min(got, 64)])
            tail = (tail + bytes(piece[max(0, got - 9) : got]))[-9:]
            if count > least and tail[:3] == b"\x05\0\0" and tail[4:5] == b"\xfe":
                return head

    head = received(_PREPARE + f"SELECT * FROM {DATABASE}.{table} ORDER BY id".encode(), 0)
    (number,) = struct.unpack_from("<I", head, 5)
    received(_EXECUTE + struct.pack("<IBI", number, 0, 1), _DESCRIBED)
    session.close()
    return 0


_READERS = {"chunks": chunks, "connectorx": connectorx, "drain": drain}


def main() -> int:
    """Read, and print what it took."""
    parser = argparse.ArgumentParser(prog="chunk_child")
    parser.add_argument("how", choices=tuple(_READERS))
    parser.add_argument("url")
    parser.add_argument("table")
    given = parser.parse_args()
    said, waits = dict[str, float](), Waits()
    if given.how == "connectorx":
        import connectorx as _  # noqa: F401 - its import is no part of the run
    elif given.how == "chunks":
        waits.watch(PacketReader, "_fill")
        for name in ("rows", "run"):
            waits.watch(connection.Session, name)
        leave_to_stay()
    elif given.how == "drain":
        with connection.connect(MysqlSettings(given.url)) as session:
            count = session.value(f"SELECT COUNT(*) FROM {DATABASE}.{given.table}")
            said["rows"] = int(count)
    wall, cpu = time.perf_counter(), time.process_time()
    rows = _READERS[given.how](given.url, given.table)
    took = {"run_s": time.perf_counter() - wall, "run_cpu_s": time.process_time() - cpu}
    if given.how == "chunks":
        said["waited_s"] = waits.seconds
    print(json.dumps({"rows": rows, **took, **said}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
