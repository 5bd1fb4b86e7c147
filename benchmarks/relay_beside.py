"""What a capture loses beside ten consumers that are busy, and beside ten processes that only burn the same time.

Consumers share a relay, and so a core, with whoever else runs there; what they must not do is to cost the source or its
capture more than any other program that is as busy. Whoever moves bytes costs others more than whoever computes,
because memory is shared too: so ten bare sockets (`benchmarks.relay_bare`) stand beside them, with burners of their
own. As a program: ``python -m benchmarks.relay_beside URL UPTO`` takes a log again and again, ``… sockets ADDRESS``
takes its bytes, and ``… burn SHARE`` uses that share of a core, all until their input ends.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

from benchmarks import contenders, harness
from benchmarks.processes import Child, cpu_s, python, running
from benchmarks.relay_bare import take
from benchmarks.relay_log import EventLog
from benchmarks.relay_process import READY_S, SEED, Run, relay
from benchmarks.server import BenchServer
from benchmarks.workloads import WORKLOADS, record
from headrace.client import Batch, Subscription
from headrace.client.settings import Settings
from headrace.outputs import NoopOutput

__all__ = ["KINDS", "beside"]

_BUSY = 10
_LOAD = "w2"
_PER_BLOCK = 400
KINDS = ("alone", "consumers", "burners", "sockets", "socket_burners")
"""Burners use what those before them used."""
_PIECE_S = 0.005


def beside(folder: Path, rounds: int, rows: int, size: int, steps: harness.Steps) -> list[Run]:
    """Measure a capture alone, beside busy consumers, and beside as many processes as they are, in turn."""
    log = EventLog(folder / "log", SEED)
    log.fill(size, _PER_BLOCK)
    log.close()
    runs: list[Run] = []
    with (
        BenchServer() as server,
        relay(bench=folder / "log") as (served, url),
        running(python("benchmarks.relay_bare", "serve", str(folder / "log"))) as bare,
    ):
        bare.until_said("at tcp", READY_S)
        takers = {
            "consumers": (url, str(log.events)),
            "sockets": ("sockets", bare.line("at tcp").removeprefix("at ")),
        }
        givers = {"consumers": [served.pid], "sockets": [bare.pid]}
        server.start_empty()
        with steps.step("inserts are played"):
            region = record(server, WORKLOADS[_LOAD], rows)
        for number in range(rounds):
            share = 0.0
            for kind in KINDS:
                with steps.step(f"a capture, round {number}, {kind}"), ExitStack() as stack:
                    others = [
                        stack.enter_context(running(command))
                        for command in _commands(takers.get(kind), kind != "alone", share)
                    ]
                    for child in others:
                        child.until_said("busy", READY_S)
                    pids = [child.pid for child in others]
                    pids += givers.get(kind, [])
                    before, began = sum(map(cpu_s, pids)), time.monotonic()
                    found, _ = contenders.headrace(server, region, "unix")
                    burnt = (sum(map(cpu_s, pids)) - before) / (time.monotonic() - began)
                    _end(others)
                runs.append(
                    {
                        "part": "beside",
                        "kind": kind,
                        "round": number,
                        "rows_per_s": found["rows_per_s"],
                        "others_cores": round(burnt, 3),
                    }
                )
                share = burnt / (_BUSY + 1)
        served.end()
        bare.end()
    return runs


def _commands(taken: Sequence[str] | None, burning: bool, share: float) -> Sequence[Sequence[str]]:
    if taken:
        return [python("benchmarks.relay_beside", *taken)] * _BUSY
    # Whoever gives is busy too where there are takers.
    burner = python("benchmarks.relay_beside", "burn", str(share))
    return [burner] * (_BUSY + 1) if burning else []


def _end(children: Sequence[Child]) -> None:
    for child in children:
        child.end()


class _Busy(NoopOutput):
    """Says that it takes batches with the first."""

    def on_data_batch(self, batch: Batch) -> None:
        """Count one."""
        if not self.counts.rows:
            print("busy", flush=True)
        super().on_data_batch(batch)


def _burn(share: float) -> NoReturn:
    """Use this share of a core, in pieces of some milliseconds."""
    while True:
        began, until = time.monotonic(), time.thread_time() + _PIECE_S
        while time.thread_time() < until:
            pass
        took = time.monotonic() - began
        time.sleep(max(0.0, _PIECE_S / share - took))


def _take(address: str) -> NoReturn:
    """Take a log's bytes again and again."""
    print("busy", flush=True)
    while True:
        take(address)


def main() -> int:
    """Be busy until the input ends."""

    def ended() -> None:
        sys.stdin.read()
        print("{}", flush=True)
        os._exit(0)

    threading.Thread(target=ended, daemon=True).start()
    if sys.argv[1] == "burn":
        print("busy", flush=True)
        _burn(float(sys.argv[2]))
    if sys.argv[1] == "sockets":
        _take(sys.argv[2])
    consumer = _Busy()
    while True:
        Subscription(
            sys.argv[1],
            "bench",
            consumer,
            upto=int(sys.argv[2]),
            settings=Settings(merge_windows=True),
            on_suspended="raise",
        ).run()


if __name__ == "__main__":
    sys.exit(main())
