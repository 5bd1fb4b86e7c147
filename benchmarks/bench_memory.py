"""What a capture holds in memory in the cases that make others grow: anonymous resident memory at its peak.

Each scenario runs in a process of its own, on one server (--scenarios):
  transaction  one transaction of --transaction-rows rows
  tables       1,000 tables, every one changed
  wide         rows of 2.5 KB
  backlog      --backlog-gb GB of log that waited
  open         a transaction is open, and has written, for the whole of a dump under load
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import contenders, dumps, harness
from benchmarks.captures import capture_run
from benchmarks.latency import Load
from benchmarks.server import BenchServer, Region
from benchmarks.workloads import SEED, WORKLOADS, record
from headrace.sources.postgres.decoder import engine

_SCENARIOS = ("transaction", "tables", "wide", "backlog", "open")
_WIDE_BYTES = 2_600
_LIMIT_S = 3600.0
_TABLE = f"public.{dumps.TABLE}"

Record = dict[str, Any]


def _read(server: BenchServer, region: Region) -> Record:
    found, _ = contenders.headrace(server, region, "unix")
    return found


def _transaction(server: BenchServer, given: argparse.Namespace) -> Record:
    return _read(server, record(server, WORKLOADS["w5"], given.transaction_rows))


def _wide(server: BenchServer, given: argparse.Namespace) -> Record:
    load = WORKLOADS["w4"]
    return _read(server, record(server, load, round(given.wide_rows / load.share)))


def _backlog(server: BenchServer, given: argparse.Namespace) -> Record:
    """Narrow and wide rows, half of the bytes each."""
    half = given.backlog_gb * 1e9 / 2
    for name in ("w2", "w4"):
        WORKLOADS[name].set_up(server, 0)
    server.begin_region("backlog", ("w2", "w4"))
    changes = 0
    for name, bytes_ in (("w2", 200), ("w4", _WIDE_BYTES)):
        changes += WORKLOADS[name].play(server, max(1000, round(half / bytes_)))
    return _read(server, server.end_region("backlog", ("w2", "w4"), changes))


def _tables(server: BenchServer, given: argparse.Namespace) -> Record:
    names = tuple(f"many_{number:04}" for number in range(given.tables))
    with server.connect() as connection:
        for name in names:
            statement = f"CREATE TABLE {name} (id bigint PRIMARY KEY, a int, note text)"
            connection.execute(statement.encode())
    server.begin_region("many", names)
    with server.connect() as connection:
        connection.execute(b"SET synchronous_commit = off")
        for first in range(0, given.table_rows, 10):
            for name in names:
                connection.execute(
                    f"INSERT INTO {name} SELECT i, i, 'note ' || i "
                    f"FROM generate_series({first}, {first + 9}) AS i".encode()
                )
    changes = len(names) * -(-given.table_rows // 10) * 10
    return _read(server, server.end_region("many", names, changes))


def _open(server: BenchServer, given: argparse.Namespace) -> Record:
    """Dump under full load while a transaction that has written stays open."""
    dumps.prepare(server, given.dump_rows)
    with (
        server.fresh_slot() as slot,
        capture_run(server.address("unix"), [_TABLE], slot=slot, publication=dumps.TABLE) as run,
    ):
        run.skip_dump([_TABLE])
        with run.started() as capture, server.connect() as holder:
            holder.execute(b"BEGIN")
            holder.execute(f"UPDATE {dumps.TABLE} SET a = -1 WHERE id = 1".encode())
            load = Load(server, dumps.UPDATE, 0, _LIMIT_S, rows=given.dump_rows)
            time.sleep(given.seconds)
            began = time.perf_counter()
            request = run.dump(_TABLE)
            capture.until(lambda: run.is_dumped(request), _LIMIT_S, "the dump is over")
            seconds = time.perf_counter() - began
            load.stop()
            holder.execute(b"COMMIT")
            usage = capture.end()
    return {
        "changes": given.dump_rows,
        "rows_per_s": round(given.dump_rows / seconds),
        "rss_mib": round(usage.rss_mib, 1),
        "run_s": round(seconds, 4),
    }


_PLAYED: dict[str, Callable[[BenchServer, argparse.Namespace], Record]] = {
    "transaction": _transaction,
    "tables": _tables,
    "wide": _wide,
    "backlog": _backlog,
    "open": _open,
}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = harness.parser("memory", __doc__ or "", runs=1)
    add = parser.add_argument
    add("--scenarios", nargs="+", choices=_SCENARIOS, default=list(_SCENARIOS))
    add("--transaction-rows", type=int, default=10_000_000, help="of the one transaction (10 M)")
    add("--tables", type=int, default=1000, help="tables (1,000)")
    add("--table-rows", type=int, default=200, help="rows of each of them (200)")
    add("--wide-rows", type=int, default=400_000, help="rows of 2.5 KB (400,000)")
    add("--backlog-gb", type=float, default=5.0, help="size of the backlog in GB (5)")
    add("--dump-rows", type=int, default=2_000_000, help="of the table that is dumped (2 M)")
    add("--seconds", type=float, default=10, help="the load runs before that dump (10)")
    given = parser.parse_args(arguments)
    if given.quick:
        given.runs, given.transaction_rows, given.tables, given.table_rows = 1, 10_000, 20, 20
        given.wide_rows, given.backlog_gb, given.dump_rows, given.seconds = 1000, 0.005, 20_000, 1
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and keep the result."""
    given = _parse(arguments)
    measured_on = harness.machine()
    records: list[dict[str, Any]] = []
    version = ""
    count = given.runs * len(given.scenarios)
    with harness.Steps("memory", count).shown() as steps, harness.until_stopped(steps):
        for name in given.scenarios:
            for round_ in range(given.runs):
                # A server for each, so that none inherits another's log.
                with steps.step(f"{name}, round {round_ + 1}"), BenchServer() as server:
                    server.start_empty()
                    found = _PLAYED[name](server, given)
                    version = server.value("SHOW server_version")
                records.append(
                    {"scenario": name, "contender": "headrace", "round": round_, **found}
                )
                steps.say(
                    f"    {found['rss_mib']:,.0f} MiB anonymous resident, "
                    f"{found['changes']:,} rows at {found['rows_per_s']:,} rows/s"
                )
    peaks: dict[str, float] = {}
    for run in records:
        peaks[run["scenario"]] = max(run["rss_mib"], peaks.get(run["scenario"], 0.0))
    path = harness.write(
        "memory",
        seed=SEED,
        sizes={
            "transaction_rows": given.transaction_rows,
            "tables": given.tables,
            "rows_per_table": given.table_rows,
            "wide_rows": given.wide_rows,
            "backlog_gb": given.backlog_gb,
            "dump_rows": given.dump_rows,
            "rounds": given.runs,
            "postgres": version,
            "decoder": engine(),
        },
        runs=records,
        summary={f"{name}_rss_mib": peak for name, peak in peaks.items()}
        | ({"rss_mib": max(peaks.values())} if peaks else {}),
        measured_on=measured_on,
        folder=harness.results_folder(given),
    )
    print(f"kept in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
