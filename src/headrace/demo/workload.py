"""The shop's traffic, as a process of its own: ``python -m headrace.demo.workload URL …``.

Several connections work through the customers of a shop (`headrace.demo.shops`) at a limited rate until the process is
asked to end (SIGTERM, or its standard input closes). Once each, at set times, it adds a column, runs one very
large transaction, and empties a small table. It prints one JSON object per line: counts
every second, and what happened when it happened.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headrace.demo.shops import ShopKind, shop_of

__all__ = ["Traffic", "main"]

_WORKERS = 4
_RECONNECT_S = 0.5


@dataclass
class Traffic:
    """Counts of all workers.

    Attributes:
        url: of the database.
        rate: transactions per second, of all workers together.
        rows: what the shop was loaded with.
        seed: of every random choice.
        big_rows: rows of the one large transaction.
        at_s: seconds after the start of the column, the large transaction and the truncate.
    """

    url: str
    rate: float
    rows: int
    seed: int = 1
    big_rows: int = 200_000
    at_s: tuple[float, float, float] = (10.0, 20.0, 30.0)
    stop: threading.Event = field(default_factory=threading.Event)
    with_channel: threading.Event = field(default_factory=threading.Event)
    done: int = 0
    lost: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def kind(self) -> ShopKind:
        """The shop of the database."""
        return shop_of(self.url)

    def run(self) -> None:
        """Work until `stop` is set."""
        threads = [
            threading.Thread(target=self._work, args=(number,), name=f"shop-{number}")
            for number in range(_WORKERS)
        ]
        threads.append(threading.Thread(target=self._direct, name="shop-director"))
        for thread in threads:
            thread.start()
        while not self.stop.wait(1.0):
            _say(transactions=self.done, lost=self.lost)
        for thread in threads:
            thread.join()
        _say(transactions=self.done, lost=self.lost, stopped=True)

    def _work(self, number: int) -> None:
        generator = random.Random(self.seed * 1000 + number)
        worker = self.kind.worker(self.url, generator, self.rows, number, _WORKERS)
        due = time.monotonic()
        while not self.stop.is_set():
            try:
                won = worker.act()
            except self.kind.away:
                # The server restarts under us in tests; transactions cut off may or may not be in.
                self.stop.wait(_RECONNECT_S)
                continue
            worker.with_channel = self.with_channel.is_set()
            with self._lock:
                self.done += won
                self.lost += not won
            # After a stall at most one second is made up for.
            due = max(due, time.monotonic() - 1.0) + _WORKERS / self.rate
            self.stop.wait(max(0.0, due - time.monotonic()))

    def _direct(self) -> None:
        started = time.monotonic()
        steps: tuple[Callable[[str], str], ...] = (
            self._add_column,
            lambda url: self.kind.change_much(url, self.big_rows),
            self.kind.empty_table,
        )
        for at, step in zip(self.at_s, steps, strict=True):
            if self.stop.wait(max(0.0, started + at - time.monotonic())):
                return
            while not self._happened(step, at):
                # Somebody may have held the table for longer than we wait for it.
                if self.stop.wait(_RECONNECT_S):
                    return

    def _happened(self, step: Callable[[str], str], at: float) -> bool:
        try:
            _say(happened=step(self.url))
        except self.kind.refused as error:
            _say(happened=f"the step at {at:.0f} s is tried again: {type(error).__name__}")
            return False
        return True

    def _add_column(self, url: str) -> str:
        said = self.kind.add_column(url)
        self.with_channel.set()
        return said


def _say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and work until asked to end."""
    parser = argparse.ArgumentParser(prog="headrace.demo.workload")
    parser.add_argument("url")
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--big-rows", type=int, default=200_000)
    parser.add_argument("--at", type=float, nargs=3, default=(10.0, 20.0, 30.0))
    given = parser.parse_args(arguments)
    traffic = Traffic(
        given.url, given.rate, given.rows, given.seed, given.big_rows, tuple(given.at)
    )
    # A transaction that lost against another one is counted, not reported.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    signal.signal(signal.SIGTERM, lambda _number, _frame: traffic.stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        # The demo holds the other end: when it dies, so does the traffic.
        sys.stdin.read()
        traffic.stop.set()

    threading.Thread(target=watch, name="shop-watch", daemon=True).start()
    traffic.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
