"""``python -m benchmarks.bare_reader FOLDER OUT``: another process that waits on what `bare_child` keeps.

Is woken as a reader of our change log is, and notes when it could read how many bytes; only afterwards are the
rows looked for in them. Ends and keeps what `reader_child` does.
"""

from __future__ import annotations

import argparse
import mmap
import os
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.bare_child import BELL_AT, LOG, TAIL
from headrace.changelog.bell import Bell

_WAIT_S = 1.0
_END = b"t\0\0\0\x02-1"


def _rows(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield id and clock of each inserted row, and where its message ends."""
    at = 0
    while at + 5 <= len(data):
        end = at + 1 + struct.unpack_from(">I", data, at + 1)[0]
        if (
            data[at : at + 1] == b"d"
            and data[at + 5 : at + 6] == b"w"
            and data[at + 30] == ord("I")
        ):
            place, cells = at + 38, []
            for _ in range(2):
                size = struct.unpack_from(">I", data, place + 1)[0]
                cells.append(int(data[place + 5 : place + 5 + size]))
                place += 5 + size
            yield cells[0], cells[1], end
        at = end


def main() -> int:
    """Wait, read and note until the last row has come."""
    parser = argparse.ArgumentParser(prog="bare_reader")
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    tail = os.open(given.folder / TAIL, os.O_RDONLY)
    log = os.open(given.folder / LOG, os.O_RDONLY)
    page = mmap.mmap(tail, mmap.PAGESIZE, access=mmap.ACCESS_READ)
    bell, data, noted = Bell(page, BELL_AT), bytearray(), list[tuple[int, int]]()
    print("waiting", flush=True)
    while _END not in data[-4096:]:
        rung, length = bell.rung, struct.unpack_from("<Q", page)[0]
        if length == len(data):
            bell.wait(rung, _WAIT_S)
            continue
        data += os.pread(log, length - len(data), len(data))
        noted.append((length, time.time_ns() // 1000))
    lengths = np.array([length for length, _ in noted])
    rows = [row for row in _rows(bytes(data)) if row[0] >= 0]
    seen = np.searchsorted(lengths, [end for _, _, end in rows])
    every = [
        (id_, at_us, at_us, noted[place][1])
        for (id_, at_us, _), place in zip(rows, seen, strict=True)
    ]
    np.save(given.out, np.array(every, np.int64))
    return 0


if __name__ == "__main__":
    sys.exit(main())
