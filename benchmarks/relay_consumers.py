"""``python -m benchmarks.relay_consumers URL COUNT``: consumers of one relay, as threads of one process.

Each is a `headrace.client.Subscription` that checks every CRC, decodes to Arrow and delivers to the output that does
nothing, so that what is measured ends there. Says ``waiting`` and
waits for a line, says ``ready`` when all of them are being served, ends at ``--upto`` or with its input, and says how
much came in which time. With ``--out`` the times of all deliveries are kept: for each batch the first id, the rows, and
the time of the callback, microseconds since 1970.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from headrace.client import Batch, Subscription
from headrace.client.settings import Settings
from headrace.outputs import NoopOutput

_LOOK_S = 0.005


class Watched(NoopOutput):
    """Notes when batches came, besides."""

    def __init__(self, keep: bool) -> None:
        super().__init__()
        self.ended_ns = 0
        self.seen: list[tuple[int, int, int]] = []
        self._keep = keep

    def on_data_batch(self, batch: Batch) -> None:
        """Note one batch."""
        self.ended_ns = time.time_ns()
        super().on_data_batch(batch)
        if self._keep:
            first = batch.rows.column("id")[0].as_py()
            self.seen.append((first, batch.rows.num_rows, self.ended_ns // 1000))


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
    given = parser.parse_args()
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
        seen = [np.array(one.seen, np.int64).reshape(-1, 3) for one in consumers]
        np.save(given.out, np.concatenate(seen))
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
