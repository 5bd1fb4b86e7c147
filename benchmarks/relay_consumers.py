"""``python -m benchmarks.relay_consumers URL COUNT``: consumers of one relay, as threads of one process.

Each is a `headrace.client.Subscription` that checks every CRC, decodes to Arrow and delivers to the output that does
nothing, so that what is measured ends there. Says ``waiting`` and
waits for a line, says ``ready`` when all of them are being served, ends at ``--upto`` or with its input, and says how
much came in which time. With ``--out`` the times of all deliveries are kept: for each batch the first id, the rows, and
the time of the callback, microseconds since 1970. With ``--on`` all of them share one processor: what one thread had
in that processor's caches, the interpreter's lock foremost, the next one has there too.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.client import Batch, Subscription
from headrace.client.settings import Settings
from headrace.outputs import NoopOutput

_LOOK_S = 0.005


class Watched(NoopOutput):
    """Notes when batches came, besides."""

    def __init__(self, keep: bool) -> None:
        super().__init__()
        self.ended_ns = 0
        self._seen: list[tuple[int, int]] = []
        self._keep = keep
        self._first: Batch | None = None
        self._last: Batch | None = None

    def on_data_batch(self, batch: Batch) -> None:
        """Note one batch."""
        self.ended_ns = time.time_ns()
        super().on_data_batch(batch)
        if self._keep:
            # Noted and no more: to take a cell out is a part of what a small batch costs.
            self._seen.append((batch.rows.num_rows, self.ended_ns // 1000))
            self._first = self._first or batch
            self._last = batch

    def deliveries(self) -> npt.NDArray[np.int64]:
        """Return first id, rows, and time of the callback of each batch.

        Raises:
            RuntimeError: what came is not every event once.
        """
        if self._first is None or self._last is None:
            return np.empty((0, 3), np.int64)
        rows, times = np.array(self._seen, np.int64).T
        first = self._first.rows.column("id")[0].as_py()
        last = self._last.rows.column("id")[-1].as_py()
        if rows.sum() != last - first + 1:
            raise RuntimeError(f"{rows.sum()} events came from {first} to {last}")
        return np.column_stack([first + np.cumsum(rows) - rows, rows, times])


def main() -> int:
    """Consume until there is no more, or until the input ends."""
    parser = argparse.ArgumentParser(prog="relay_consumers")
    parser.add_argument("url")
    parser.add_argument("count", type=int)
    parser.add_argument("--source", default="bench")
    parser.add_argument("--start", default="newest")
    parser.add_argument("--upto", type=int)
    parser.add_argument("--pull-every", type=float, help="ask so often instead of being sent")
    parser.add_argument("--filter")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--on", type=int, help="of the processors that there are")
    given = parser.parse_args()
    if given.on is not None:
        processors = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {processors[given.on % len(processors)]})
    settings = Settings(
        merge_windows=True,
        pull=given.pull_every is not None,
        pull_wait_ms=0,
        pull_every_s=given.pull_every or 0.0,
    )
    consumers = [Watched(given.out is not None) for _ in range(given.count)]
    subscriptions = [
        Subscription(
            given.url,
            given.source,
            consumer,
            start=given.start,
            upto=given.upto,
            filter=json.loads(given.filter) if given.filter else None,
            settings=settings,
            on_suspended="raise",
        )
        for consumer in consumers
    ]
    failed: list[BaseException] = []

    def run(subscription: Subscription) -> None:
        try:
            subscription.run()
        except BaseException as error:  # noqa: BLE001 - told below
            failed.append(error)

    threads = [threading.Thread(target=run, args=(one,), daemon=True) for one in subscriptions]
    print("waiting", flush=True)
    sys.stdin.readline()
    began_ns = time.time_ns()
    for thread in threads:
        thread.start()
    while not failed and not all(one.status.connections for one in subscriptions):
        time.sleep(_LOOK_S)
    print("ready", flush=True)
    if given.upto is None:
        sys.stdin.read()
        for subscription in subscriptions:
            subscription.stop()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    if given.out is not None:
        np.save(given.out, np.concatenate([one.deliveries() for one in consumers]))
    said: dict[str, Any] = {
        "rows": [one.counts.rows for one in consumers],
        "bytes": sum(one.counts.bytes for one in consumers),
        "began_ns": began_ns,
        "ended_ns": max(one.ended_ns for one in consumers),
    }
    print(json.dumps(said), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
