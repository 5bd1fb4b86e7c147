"""``python -m benchmarks.mysql.log_child HOW URL REGION``: reads a stretch of the log and drops what it makes of it.

HOW is ``raw`` (bytes of the socket, nothing looked at), ``batches`` (our reader: Arrow batches of whole transactions)
or ``python`` (python-mysql-replication: a dictionary a row). REGION is a JSON file. Prints what it took from the first
connection on, without the start of Python.
"""

# ruff: noqa: E402
from __future__ import annotations

from headrace.replicator.lean import begin_lean, leave_to_stay

# As the capture's own process begins: before anything imports numpy or pyarrow.
begin_lean()

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.mysql.server import DATABASE, Region
from benchmarks.mysql.waits import Waits
from headrace.registry.file import FileRegistry
from headrace.sources.mysql import MysqlSource
from headrace.sources.mysql.connection import connect
from headrace.sources.mysql.dump import Dump
from headrace.sources.mysql.packets import PacketReader
from headrace.sources.mysql.settings import MysqlSettings

_PIECE = 1 << 20
_END_BYTES = 9
_WAIT_S = 0.2


def raw(url: str, region: Region, _: Path) -> dict[str, float]:
    """Receive the log to its end; return bytes and, since it says no more, when the last came."""
    settings = MysqlSettings(url)
    session = connect(settings)
    socket = session.socket()
    Dump(session, settings, 4_000_000_003, (region.file, region.position), follow=False)
    piece = bytearray(_PIECE)
    view, count, tail = memoryview(piece), 0, b""
    socket.settimeout(_WAIT_S)
    last = time.perf_counter(), time.process_time()
    while True:
        try:
            got = socket.recv_into(view)
        except TimeoutError:
            break
        count += got
        tail = (tail + bytes(view[max(0, got - _END_BYTES) : got]))[-_END_BYTES:]
        last = time.perf_counter(), time.process_time()
        # The packet that ends a log is of five bytes, the first of them 0xFE.
        if not got or (tail[:3] == b"\x05\0\0" and tail[4:5] == b"\xfe"):
            break
    session.close()
    return {"bytes": count, "at": last[0], "cpu_at": last[1]}


def batches(url: str, region: Region, folder: Path) -> dict[str, float]:
    """Read whole transactions as Arrow batches."""
    source = MysqlSource(url, folder, [f"{DATABASE}.{region.load}"])
    reader, rows, scn = source.open(FileRegistry(folder / "schemas")), 0, 0
    waits = Waits()
    waits.watch(PacketReader, "_fill")
    while scn < region.until:
        item = reader.poll(1.0)
        if item is None:
            continue
        rows += sum(body.batch.num_rows for body in item.block.bodies)
        scn = item.block.covered_scn
    reader.close()
    return {"rows": rows, "waited_s": waits.seconds}


def python(url: str, region: Region, _: Path) -> dict[str, float]:
    """Read as many changes as a region's ``changes`` says with python-mysql-replication."""
    from pymysqlreplication import BinLogStreamReader
    from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

    parts = urlsplit(url)
    with connect(MysqlSettings(url)) as session:
        maria = "mariadb" in session.version.lower()
    stream: Any = BinLogStreamReader(
        connection_settings={
            "host": parts.hostname,
            "port": parts.port,
            "user": parts.username,
            "passwd": parts.password,
        },
        server_id=4_000_000_004,
        resume_stream=True,
        log_file=region.file,
        log_pos=region.position,
        is_mariadb=maria,
        only_schemas=[DATABASE],
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
    )
    rows = 0
    for event in stream:
        rows += len(event.rows)
        if rows >= region.changes:
            break
    stream.close()
    return {"rows": rows}


def main() -> int:
    """Read, and print what it took."""
    parser = argparse.ArgumentParser(prog="log_child")
    parser.add_argument("how", choices=("raw", "batches", "python"))
    parser.add_argument("url")
    parser.add_argument("region", type=Path)
    given = parser.parse_args()
    region = Region(**json.loads(given.region.read_text(encoding="utf-8")))
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        # What one has who has read up to there; to write it is no part of the run.
        region.stand_before(folder)
        (folder / "schemas").mkdir()
        leave_to_stay()
        wall, cpu = time.perf_counter(), time.process_time()
        said = {"raw": raw, "batches": batches, "python": python}[given.how](
            given.url, region, folder
        )
        said["run_s"] = said.pop("at", time.perf_counter()) - wall
        said["run_cpu_s"] = said.pop("cpu_at", time.process_time()) - cpu
    print(json.dumps(said), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
