"""``python -m benchmarks.capture_child FILE``: the capture of `headrace run`, measured from inside.

Ends when ``--until SCN`` is durable in the change log, when every table is dumped (``--dump``), or when its standard
input closes. Prints ``streaming`` when the log is open, and at the end one JSON object: what the run took
from the first connection on, without the start of Python; the second half alone is ``steady``. With ``--inside``, which
costs a little, also the latency inside this process.
"""

# ruff: noqa: E402
from __future__ import annotations

from headrace.replicator.lean import begin_lean, leave_to_stay

# As the capture's own process begins: before anything imports numpy or pyarrow.
begin_lean()

import argparse
import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.inside import Arrivals
from headrace.changelog import ChangeLogReader
from headrace.relay.capture import Capture
from headrace.replicator import config_file, runner
from headrace.replicator.paths import StatePaths


class _Watch(threading.Event):
    """Asked by the capture before every round whether to stop; looks at the change log as a reader does.

    Args:
        reader: of the change log.
        until_scn: stop when a transaction from here on is durable; 0 for never.
        dump: stop when every table is dumped.
    """

    def __init__(self, reader: ChangeLogReader, until_scn: int, dump: bool) -> None:
        super().__init__()
        self._reader = reader
        self._until_scn = until_scn
        self._dump = dump
        self._told = False
        self.capture: Capture | None = None
        self.samples: list[tuple[int, float, float]] = []

    def is_set(self) -> bool:
        if not self._told:
            self._told = True
            print("streaming", flush=True)
        scn = self._reader.tail().complete_scn
        if not self.samples or scn != self.samples[-1][0]:
            self.samples.append((scn, time.perf_counter(), time.process_time()))
        if self._until_scn and scn >= self._until_scn:
            return True
        if self._dump and self.capture is not None and self.capture.is_idle:
            # It is idle before the first request is taken up, too.
            tables = self.capture.status().tables
            if tables and all(table.completed_scn for table in tables):
                return True
        return super().is_set()


def _steady(watch: _Watch, reader: ChangeLogReader) -> dict[str, float]:
    """Return the rate and CPU time of the second half of the changes, nothing when one round brought it all."""
    index = reader.index(0)
    changes = np.cumsum(index["changes"].astype(np.int64))
    if not len(changes):
        return {}
    last = watch.samples[-1]
    for scn, wall, cpu in watch.samples[:-1]:
        before = int(np.searchsorted(index["scn"], scn, side="right"))
        done = int(changes[before - 1]) if before else 0
        if done * 2 >= changes[-1]:
            left = int(changes[-1]) - done
            if left * 10 < changes[-1] or last[1] <= wall:
                return {}
            return {
                "steady_share": left / float(changes[-1]),
                "steady_s": last[1] - wall,
                "steady_cpu_s": last[2] - cpu,
            }
    return {}


def _end_with_input(watch: _Watch) -> None:
    os.read(0, 1)
    watch.set()


def main() -> int:
    """Capture, and print what it took."""
    parser = argparse.ArgumentParser(prog="capture_child")
    parser.add_argument("file", type=Path)
    parser.add_argument("--until", type=int, default=0)
    parser.add_argument("--dump", action="store_true")
    parser.add_argument("--inside", action="store_true")
    given = parser.parse_args()
    config = config_file.load(given.file)
    paths = StatePaths.of(config)
    paths.create()
    # One of its own: a reader is used from one thread, and the capture has another.
    reader = ChangeLogReader(paths.changelog)
    watch = _Watch(reader, given.until, given.dump)
    if not given.until and not given.dump:
        threading.Thread(target=_end_with_input, args=(watch,), daemon=True).start()
    arrivals = Arrivals()
    with (
        arrivals.watching() if given.inside else contextlib.nullcontext(),
        runner.capture(config, paths, watch, lambda _detail: None) as capture,
    ):
        watch.capture = capture
        leave_to_stay()
        wall, cpu = time.perf_counter(), time.process_time()
        began_us = time.time_ns() // 1000
        capture.run(watch)
        said: dict[str, Any] = {
            "run_s": watch.samples[-1][1] - wall,
            "run_cpu_s": watch.samples[-1][2] - cpu,
            "began_us": began_us,
            "first_s": next((at - wall for scn, at, _ in watch.samples if scn), 0.0),
        }
        if given.dump:
            said["run_s"] = time.perf_counter() - wall
            said["run_cpu_s"] = time.process_time() - cpu
    said |= _steady(watch, reader)
    if given.inside:
        durable = [(scn, at) for scn, at, _ in watch.samples]
        said |= arrivals.percentiles(reader.index(0)["scn"].astype(np.int64), durable)
    print(json.dumps(said), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
