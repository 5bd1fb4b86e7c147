"""``make bench-sender``: whether the reader or the server's sending process limits a busy stream by a Unix socket.

Loads of bench-capture by the transport at which a client that only keeps the bytes is as slow as any, in many rounds:
headrace, pg_recvlogical and that bare client in turn. Beside each, what the server's process does with its time: it
runs, it is ready but others have the processor, or it waits, for its reader or for the log.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from typing import Any

from benchmarks import contenders, harness
from benchmarks.capture_summary import BARE, PEER, US
from benchmarks.processes import Turns, turns
from benchmarks.server import BenchServer
from benchmarks.workloads import SEED, WORKLOADS, record

_TRANSPORT = "unix"
_LOADS = ("w1", "w5")
_SAMPLE_S = 0.02

Record = dict[str, Any]


class _Sender:
    """Looks at the server's process that sends to one reader, from when it is there until it is gone."""

    def __init__(self, server: BenchServer) -> None:
        self._server = server
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._seen: list[Turns] = []

    def __enter__(self) -> _Sender:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _look(self) -> None:
        pid: int | None = None
        while not self._stopped.wait(_SAMPLE_S):
            pid = pid or self._server.sender()
            if pid is not None and (now := turns(pid)) is not None:
                self._seen.append(now)

    def shares(self) -> Record:
        """Return what it did with its time, as shares of it; nothing where the system does not say."""
        if len(self._seen) < 2:
            return {}
        first, last = self._seen[0], self._seen[-1]
        lasted_s = last.at_s - first.at_s
        runs = (last.ran_s - first.ran_s) / lasted_s
        ready = (last.ready_s - first.ready_s) / lasted_s
        return {
            "sender_runs": round(runs, 4),
            "sender_ready": round(ready, 4),
            "sender_waits": round(max(0.0, 1 - runs - ready), 4),
            "sender_preempted_per_s": round((last.preempted - first.preempted) / lasted_s, 1),
        }


def play(server: BenchServer, given: argparse.Namespace, steps: harness.Steps) -> list[Record]:
    """Return a record for each run of each reader."""
    runs: list[Record] = []
    for name in given.loads:
        with steps.step(f"{name}: {WORKLOADS[name].title} is played"):
            region = record(server, WORKLOADS[name], given.rows)
        options: dict[str, str] = {}
        for round_ in range(given.runs):
            for contender in (US, PEER, BARE):
                with (
                    steps.step(f"{name} {contender}, round {round_ + 1}"),
                    _Sender(server) as sender,
                ):
                    if contender == US:
                        found, used = contenders.headrace(server, region, _TRANSPORT)
                        options = used or options
                    elif contender == PEER:
                        found = contenders.pg_recvlogical(server, region, _TRANSPORT, options)
                    else:
                        found = contenders.bare(server, region, _TRANSPORT)
                about = {
                    "load": name,
                    "transport": _TRANSPORT,
                    "contender": contender,
                    "round": round_,
                }
                runs.append(about | found | sender.shares())
                steps.say(f"    {contender:18} {found['rows_per_s']:,} rows/s")
        server.drop_slot(name)
    return runs


def summary(runs: Sequence[Record]) -> dict[str, float]:
    """Return the figures of the page."""
    found: dict[str, float | None] = {}
    for load in sorted({run["load"] for run in runs}):
        ours, peer, bare = (
            harness.select(runs, load=load, contender=contender) for contender in (US, PEER, BARE)
        )
        found[f"{load}_vs_pg_recvlogical"] = harness.paired(ours, peer, "rows_per_s")
        found[f"{load}_bare_vs_pg_recvlogical"] = harness.paired(bare, peer, "rows_per_s")
        for share in ("runs", "ready", "waits"):
            for label, of in (("", ours), ("_pg_recvlogical", peer), ("_bare", bare)):
                found[f"{load}_sender_{share}{label}"] = harness.median(of, f"sender_{share}")
    return {name: value for name, value in found.items() if value is not None}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = harness.parser("sender", __doc__ or "", runs=15)
    parser.add_argument(
        "--rows",
        type=int,
        default=3_000_000,
        help="changes of a load (3,000,000; w1 80 %%, w5 1,000,000 at most)",
    )
    parser.add_argument("--loads", nargs="+", choices=list(WORKLOADS), default=list(_LOADS))
    given = parser.parse_args(arguments)
    if given.quick:
        given.rows, given.runs = min(given.rows, 100_000), 1
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and keep the result."""
    given = _parse(arguments)
    measured_on = harness.machine()
    steps = harness.Steps("sender", len(given.loads) * (1 + 3 * given.runs))
    runs: list[Record] = []
    with BenchServer() as server, steps.shown(), harness.until_stopped(steps):
        server.start_empty()
        if not given.quick:
            harness.touch_memory()
        version = server.value("SHOW server_version")
        runs += play(server, given, steps)
    return harness.keep(
        "sender",
        given,
        steps,
        seed=SEED,
        sizes={"rows": given.rows, "rounds": given.runs, "postgres": version},
        runs=runs,
        summary=summary(runs),
        measured_on=measured_on,
    )


if __name__ == "__main__":
    sys.exit(main())
