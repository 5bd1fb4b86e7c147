"""How fast the log gets from PostgreSQL into the change log on disk, beside pg_recvlogical and Debezium.

A bare client, which receives the bytes, writes and syncs them and looks at none, stands beside both: what it takes is
the kernel's, the disk's and the server's share, and nobody who keeps what he received takes less.

Four parts, each on one server that syncs every write (--parts):
  backlog  a recorded load is read from copies of one slot, every contender in turn, round by round
  heap     the smallest heap at which Debezium keeps 95 % of its rate, and the memory it takes there
  idle     single commits until another process reads them in the change log
  rates    the same at steady rates, and Debezium's consumer beside it

Loads: w1 pgbench TPC-B; w2 inserts of 10 columns; w3d and w3f updates with identity DEFAULT and FULL; w4 rows of
2.5 KB; w5 one transaction.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from benchmarks import contenders, harness, latency
from benchmarks.capture_summary import BARE, PEER, US, summarise
from benchmarks.debezium import jars
from benchmarks.debezium.engine import SETTINGS
from benchmarks.server import TRANSPORTS, BenchServer, Region
from benchmarks.workloads import SEED, WORKLOADS, record
from headrace.sources.postgres.decoder import engine

_PARTS = ("backlog", "heap", "idle", "rates")
_HEAPS = ("4g", "2g", "1g", "512m", "384m", "256m", "192m", "128m", "96m", "64m")
_LATENCY_SETTINGS = ("connect", "connect-poll-1ms", "connect-default")

Record = dict[str, Any]


class _Bench:
    """One run of the benchmark: collects records."""

    def __init__(
        self, server: BenchServer, steps: harness.Steps, given: argparse.Namespace
    ) -> None:
        self._server = server
        self._steps = steps
        self._given = given
        self.records: list[Record] = []

    def play(self) -> None:
        given = self._given
        for name in given.loads if {"backlog", "heap"} & set(given.parts) else ():
            with self._steps.step(f"{name}: {WORKLOADS[name].title} is played"):
                region = record(self._server, WORKLOADS[name], given.rows)
            if "backlog" in given.parts:
                self._backlog(name, region)
            if "heap" in given.parts and given.debezium and name == given.heap_load:
                self._heap(name, region)
            self._server.drop_slot(name)
        if {"idle", "rates"} & set(given.parts):
            latency.prepare(self._server)
        for rate in _rates(given):
            self._latency(rate)

    def _keep(self, part: str, contender: str, round_: int, found: Record, **more: Any) -> None:
        self.records.append(
            {"part": part, "contender": contender, "round": round_, **more, **found}
        )
        if "failed" in found:
            self._steps.say(f"    {contender:18} {found['failed']}")
            return
        if "rows_per_s" in found:
            figures = f"{found['rows_per_s']:,} rows/s"
        else:
            figures = f"p50 {found['p50_ms']:.2f} ms, p99 {found['p99_ms']:.2f} ms"
        self._steps.say(f"    {contender:18} {figures} · {found['rss_mib']:,.0f} MiB")

    def _backlog(self, name: str, region: Region) -> None:
        server, options = self._server, dict[str, str]()
        for round_ in range(self._given.runs):
            for transport in self._given.transports:
                about = {"load": name, "transport": transport}
                with self._steps.step(f"{name} {transport} {US}, round {round_ + 1}"):
                    found, used = contenders.headrace(server, region, transport)
                    options = used or options
                    self._keep("backlog", US, round_, found, **about)
                with self._steps.step(f"{name} {transport} {PEER}, round {round_ + 1}"):
                    found = contenders.pg_recvlogical(server, region, transport, options)
                    self._keep("backlog", PEER, round_, found, **about)
                with self._steps.step(f"{name} {transport} {BARE}, round {round_ + 1}"):
                    found = contenders.bare(server, region, transport)
                    self._keep("backlog", BARE, round_, found, **about)
            if round_ >= self._given.peer_runs:
                continue
            for setting in _settings(self._given, name):
                with self._steps.step(f"{name} tcp Debezium {setting}, round {round_ + 1}"):
                    about = {"load": name, "transport": "tcp"}
                    call = partial(contenders.debezium, server, region, SETTINGS[setting])
                    found = harness.tried(call)
                    self._keep("backlog", f"debezium {setting}", round_, found, **about)

    def _heap(self, name: str, region: Region) -> None:
        """Lower the heap until the machine gives up; which ones keep the rate is judged afterwards."""
        setting, best = SETTINGS["connect-default"], 0.0
        for heap in self._given.heaps:
            for round_ in range(self._given.peer_runs):
                with self._steps.step(f"{name} tcp Debezium, heap {heap}, round {round_ + 1}"):
                    limit_s = 120 + 10 * region.changes / max(best, 5000)
                    call = partial(
                        contenders.debezium, self._server, region, setting, heap, limit_s
                    )
                    found = harness.tried(call)
                    about = {"load": name, "transport": "tcp", "heap": heap}
                    self._keep("heap", f"debezium {setting.name}", round_, found, **about)
                    if "failed" in found:
                        return
                    best = max(best, found["rows_per_s"])

    def _latency(self, rate: int) -> None:
        part, seconds = "rates" if rate else "idle", self._given.seconds
        title = f"{rate:,} tx/s" if rate else "single commits"
        for round_ in range(self._given.runs):
            with self._steps.step(f"{title}, {US}, round {round_ + 1}"):
                found = latency.headrace_latency(self._server, rate, seconds)
                self._keep(part, US, round_, found, rate=rate)
            with self._steps.step(f"{title}, {BARE}, round {round_ + 1}"):
                found = latency.bare_latency(self._server, rate, seconds)
                self._keep(part, BARE, round_, found, rate=rate)
            if not rate or not self._given.debezium or round_ >= self._given.peer_runs:
                continue
            for setting in _LATENCY_SETTINGS:
                with self._steps.step(f"{title}, Debezium {setting}, round {round_ + 1}"):
                    found = latency.debezium_latency(self._server, SETTINGS[setting], rate, seconds)
                    self._keep(part, f"debezium {setting}", round_, found, rate=rate)


def _rates(given: argparse.Namespace) -> list[int]:
    return ([0] if "idle" in given.parts else []) + (
        list(given.rates) if "rates" in given.parts else []
    )


def _settings(given: argparse.Namespace, load: str) -> Sequence[str]:
    if not given.debezium or load not in given.debezium_loads:
        return ()
    return tuple(SETTINGS)


def _steps(given: argparse.Namespace) -> int:
    """Return how many steps there will be at most."""
    count = len(given.loads)
    for name in given.loads:
        if "backlog" in given.parts:
            count += given.runs * 3 * len(given.transports)
            count += given.peer_runs * len(_settings(given, name))
        if "heap" in given.parts and given.debezium and name == given.heap_load:
            count += given.peer_runs * len(given.heaps)
    for rate in _rates(given):
        peers = len(_LATENCY_SETTINGS) if rate and given.debezium else 0
        count += given.runs * 2 + given.peer_runs * peers
    return count


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = harness.parser("capture", __doc__ or "", runs=5)
    add = parser.add_argument
    add(
        "--rows",
        type=int,
        # Runs of some seconds: connecting and the last sync are a hundredth of them, and not a tenth.
        default=3_000_000,
        help="changes of a load (3,000,000; w1 80 %%, w4 20 %%, w5 1,000,000 at most)",
    )
    add("--peer-runs", type=int, default=3, help="rounds in which Debezium takes part (3)")
    add("--seconds", type=float, default=20, help="of a latency run (20)")
    add("--parts", nargs="+", choices=_PARTS, default=list(_PARTS), help="what is measured")
    add(
        "--loads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS), help="backlog loads"
    )
    add("--transports", nargs="+", choices=TRANSPORTS, default=list(TRANSPORTS))
    add("--rates", nargs="+", type=int, default=[100, 1000, 5000], help="transactions per second")
    add("--heaps", nargs="+", default=list(_HEAPS), help="largest heaps, falling")
    add("--heap-load", default="w2", help="load of the heap part (w2)")
    add("--debezium-loads", nargs="+", default=["w2", "w3d", "w4"], help="loads that it reads")
    add(
        "--without-debezium",
        dest="debezium",
        action="store_false",
        help="leave Debezium and Java out",
    )
    given = parser.parse_args(arguments)
    given.peer_runs = min(given.peer_runs, given.runs)
    if given.quick:
        given.rows, given.seconds, given.runs = min(given.rows, 4000), min(given.seconds, 3), 1
        given.peer_runs = 1
        given.rates, given.heaps = [rate for rate in given.rates if rate <= 1000], ["4g", "256m"]
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and keep the result."""
    given = _parse(arguments)
    measured_on = harness.machine()
    with (
        BenchServer() as server,
        harness.Steps("capture", _steps(given)).shown() as steps,
    ):
        server.start_empty()
        if not given.quick:
            harness.touch_memory()
        bench = _Bench(server, steps, given)
        with harness.until_stopped(steps):
            bench.play()
        sizes = {
            "rows": given.rows,
            "seconds": given.seconds,
            "rounds": given.runs,
            "debezium_rounds": given.peer_runs,
            "postgres": server.value("SHOW server_version"),
            "server": "fsync on, synchronous_commit on, shared_buffers 1 GB, autovacuum off",
            "decoder": engine(),
            "debezium": jars.version("postgres") if given.debezium else "left out",
            "debezium_settings": {name: setting.title for name, setting in SETTINGS.items()},
        }
    path = harness.write(
        "capture",
        seed=SEED,
        sizes=sizes,
        runs=bench.records,
        summary=summarise(bench.records),
        measured_on=measured_on,
        folder=harness.results_folder(given),
    )
    print(f"kept in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
