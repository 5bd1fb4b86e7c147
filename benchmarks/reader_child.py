"""``python -m benchmarks.reader_child FOLDER TABLE OUT``: another process that waits on a change log.

Notes when it could read each row of a table with columns ``id`` and ``at_us``; says ``warm`` after the first, ends with
the row whose id is −1. Keeps id, the row's own clock, the commit's time and the time seen, microseconds since 1970, in
a NumPy file; rows with a negative id are not kept.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changelog import ChangeLogReader
from headrace.model.block import Block

_WAIT_S = 1.0
_COMMITTED = pa.array(["+I", "+U", "=U"])
END_ID = -1


def _rows(block: Block, table: str, seen_us: int) -> list[np.ndarray]:
    found = []
    for body in block.bodies:
        if body.table.name != table:
            continue
        # What a dump reads again is no commit; a Python object for each of its rows would hold the next commit up.
        batch = body.batch.filter(pc.is_in(body.batch.column("_op"), value_set=_COMMITTED))
        if not batch.num_rows:
            continue
        scns = batch.column("_scn").to_numpy()
        commits = block.index["commit_us"][np.searchsorted(block.index["scn"], scns)]
        columns = [batch.column(name).to_numpy(zero_copy_only=False) for name in ("id", "at_us")]
        rows = np.stack([*columns, commits, np.full(len(scns), seen_us)], axis=1)
        found.append(rows.astype(np.int64))
    return found


def main() -> int:
    """Wait, read and note until the last row has come."""
    parser = argparse.ArgumentParser(prog="reader_child")
    parser.add_argument("folder", type=Path)
    parser.add_argument("table")
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    reader = ChangeLogReader(given.folder)
    at, rows, ended = reader.tail().covered_scn, [np.empty((0, 4), np.int64)], False
    print("waiting", flush=True)
    while not ended:
        if not reader.wait(at + 1, _WAIT_S):
            continue
        covered = reader.tail().covered_scn
        for block in reader.blocks(at):
            fresh = _rows(block, given.table, time.time_ns() // 1000)
            if fresh and len(rows) == 1:
                print("warm", flush=True)
            rows += fresh
            ended = ended or any((part[:, 0] == END_ID).any() for part in fresh)
            covered = max(covered, block.covered_scn)
        at = covered
    every = np.concatenate(rows)
    np.save(given.out, every[every[:, 0] >= 0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
