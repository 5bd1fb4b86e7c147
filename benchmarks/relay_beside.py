"""What a capture loses beside ten consumers that are busy, and beside ten processes that only burn the same time.

Consumers share a relay, and so a core, with whoever else runs there; what they must not do is to cost the source or its
capture more than any other program that is as busy. As a program: ``python -m benchmarks.relay_beside URL UPTO`` takes
a log again and again, and ``… burn SHARE`` uses that share of a core, both until their input ends.
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
from benchmarks.relay_log import EventLog
from benchmarks.relay_process import READY_S, SEED, Run, relay
from benchmarks.server import BenchServer
from benchmarks.workloads import WORKLOADS, record
from headrace.client import Batch, Subscription
from headrace.client.settings import Settings
from headrace.outputs import NoopOutput

__all__ = ["beside"]

_BUSY = 10
_LOAD = "w2"
_PER_BLOCK = 400
_KINDS = ("alone", "consumers", "burners")
_PIECE_S = 0.005


def beside(folder: Path, rounds: int, rows: int, size: int, steps: harness.Steps) -> list[Run]:
    """Measure a capture alone, beside busy consumers, and beside as many processes as they are, in turn."""
    log = EventLog(folder / "log", SEED)
    log.fill(size, _PER_BLOCK)
    log.close()
    runs: list[Run] = []
    with BenchServer() as server, relay(bench=folder / "log") as (served, url):
        server.start_empty()
        with steps.step("inserts are played"):
            region = record(server, WORKLOADS[_LOAD], rows)
        for number in range(rounds):
            share = 0.0
            for kind in _KINDS:
                with steps.step(f"a capture, round {number}, {kind}"), ExitStack() as stack:
                    others = [
                        stack.enter_context(running(command))
                        for command in _commands(kind, url, log.events, share)
                    ]
                    for child in others:
                        child.until_said("busy", READY_S)
                    pids = [child.pid for child in others]
                    pids += [served.pid] if kind == "consumers" else []
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
    return runs


def _commands(kind: str, url: str, upto: int, share: float) -> Sequence[Sequence[str]]:
    if kind == "consumers":
        return [python("benchmarks.relay_beside", url, str(upto))] * _BUSY
    # The relay is busy too where it has consumers.
    burner = python("benchmarks.relay_beside", "burn", str(share))
    return [burner] * (_BUSY + 1) if kind == "burners" else []


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
