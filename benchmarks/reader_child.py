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
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changelog import ChangeLogReader

_WAIT_S = 1.0
_COMMITTED = pa.array(["+I", "+U", "=U"])
END_ID = -1


class _Seen(NamedTuple):
    """What one look brought: the table's rows, their transactions, and when, microseconds since 1970."""

    rows: pa.RecordBatch
    transactions: npt.NDArray[np.void]
    at_us: int


def _times(seen: _Seen) -> npt.NDArray[np.int64]:
    """Return what is kept of each row, in four columns."""
    # What a dump reads again is no commit.
    rows = seen.rows.filter(pc.is_in(seen.rows.column("_op"), value_set=_COMMITTED))
    scns = rows.column("_scn").to_numpy()
    commits = seen.transactions["commit_us"][np.searchsorted(seen.transactions["scn"], scns)]
    columns = [rows.column(name).to_numpy(zero_copy_only=False) for name in ("id", "at_us")]
    return np.stack([*columns, commits, np.full(len(scns), seen.at_us)], axis=1).astype(np.int64)


def main() -> int:
    """Wait, read and note until the last row has come."""
    parser = argparse.ArgumentParser(prog="reader_child")
    parser.add_argument("folder", type=Path)
    parser.add_argument("table")
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    reader = ChangeLogReader(given.folder)
    at, seen = reader.tail().covered_scn, list[_Seen]()
    print("waiting", flush=True)
    while not seen or seen[-1].rows.column("id")[-1].as_py() != END_ID:
        if not reader.wait(at + 1, _WAIT_S):
            continue
        for block in reader.blocks(at):
            at_us = time.time_ns() // 1000
            # Nothing more, before the last row: a reader at work on one commit sees the next one later.
            found = [body.batch for body in block.bodies if body.table.name == given.table]
            if found and not seen:
                print("warm", flush=True)
            seen += [_Seen(rows, block.index, at_us) for rows in found if rows.num_rows]
            at = max(at, block.covered_scn)
    every = np.concatenate([_times(each) for each in seen])
    np.save(given.out, every[every[:, 0] >= 0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
