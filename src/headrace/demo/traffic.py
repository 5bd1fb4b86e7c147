"""Runs the shop's traffic in a process of its own, and listens to what it says."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import IO

__all__ = ["TrafficProcess"]

_STOP_S = 15.0


class TrafficProcess:
    """The traffic; use it in a ``with`` block, which ends it.

    Args:
        url: of the database.
        rate: transactions per second.
        rows: what the shop was loaded with.
        big_rows: rows of the one large transaction.
        at_s: when the column is added, the large transaction runs, the small table is emptied.
    """

    def __init__(
        self, url: str, rate: float, rows: int, big_rows: int, at_s: tuple[float, float, float]
    ) -> None:
        self._command = [
            *(sys.executable, "-m", "headrace.demo.workload", url),
            *("--rate", str(rate), "--rows", str(rows), "--big-rows", str(big_rows)),
            *("--at", *(str(second) for second in at_s)),
        ]
        self._process: subprocess.Popen[str] | None = None
        self._news: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._listener: threading.Thread | None = None
        self.transactions = 0
        self.started_at = 0.0
        self.stopped_at: float | None = None

    def __enter__(self) -> TrafficProcess:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.started_at = time.time()
        assert self._process.stdout is not None
        self._listener = threading.Thread(
            target=self._listen, args=(self._process.stdout,), name="shop-listener", daemon=True
        )
        self._listener.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def news(self) -> Iterator[str]:
        """Yield what happened since the last call."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._news.get_nowait()

    @property
    def rate(self) -> float:
        """Committed transactions per second so far."""
        until = self.stopped_at or time.time()
        return self.transactions / max(0.001, until - self.started_at)

    def stop(self) -> None:
        """End the traffic after the transactions that are open; returns when it is over."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self.stopped_at = time.time()
        if self._listener is not None:
            self._listener.join(_STOP_S)

    def _listen(self, output: IO[str]) -> None:
        with output:
            for line in output:
                with contextlib.suppress(json.JSONDecodeError):
                    said = json.loads(line)
                    self.transactions = said.get("transactions", self.transactions)
                    if "happened" in said:
                        self._news.put(said["happened"])
