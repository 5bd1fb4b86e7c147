"""How fast a binary log becomes Arrow batches and a change log on disk, and a table Arrow batches.

On each server (--servers) the same stretches of log are read in turn by a client that receives bytes and looks at
nothing, by our reader (batches), by our capture into the change log on disk (headrace), and by go-mysql, the Java
connector that Debezium stands on, python-mysql-replication and Debezium; then a table by our chunks, by connectorx, and
by a client that receives its rows and looks at none. The slow ones take part in fewer rounds (--peer-runs) or read
fewer rows. Debezium's own connector for MariaDB is not in every repository, so it is measured on MySQL alone.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import statistics
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.debezium import jars
from benchmarks.harness import median, paired, select
from benchmarks.mysql import contenders, server
from benchmarks.mysql.contenders import Measured
from headrace.sources.mysql.engine import ENGINES
from headrace.testing import mysql_server

_SEED = 1
_ALL_ROUNDS = ("raw", "batches", "headrace")
_PEERS = ("go-mysql", "java-connector", "python-mysql-replication", "debezium")

Record = dict[str, Any]


def _readers(given: argparse.Namespace, kind: str, load: str) -> list[tuple[str, int]]:
    """Return who reads a load, with the number of rounds."""
    found = [(name, given.runs) for name in _ALL_ROUNDS]
    found += [(name, given.peer_runs) for name in _PEERS[:-1] if name not in given.without]
    if "debezium" not in given.without and kind == "mysql":
        found.append(("debezium", min(1, given.peer_runs) if load != "narrow" else given.peer_runs))
    return found


def _measure_load(
    measured: Measured, given: argparse.Namespace, load: server.Load, steps: harness.Steps
) -> list[Record]:
    rows, records = load.rows(given.rows), list[Record]()
    readers = _readers(given, measured.kind, load.name)
    primed: Path | None = None
    with steps.step(f"{measured.kind}, {load.name}: {rows:,} changes are made"):
        server.begin(measured.server, load, rows)
        if any(name == "debezium" for name, _ in readers):
            primed = contenders.debezium_primed(measured, load.name)
        region = server.record(measured.server, load, rows)
    try:
        for round_ in range(given.runs):
            for name, rounds in readers:
                if round_ >= rounds:
                    continue
                if name == "debezium":
                    assert primed is not None
                    call = partial(contenders.debezium_read, measured, region, primed)
                else:
                    call = partial(contenders.LOG_READERS[name], measured, region)
                with steps.step(f"{measured.kind}, {load.name}: {name}, round {round_ + 1}"):
                    found = call() if name in _ALL_ROUNDS else harness.tried(call)
                records.append(_named(measured, load.name, name, round_, found, steps))
    finally:
        if primed is not None:
            shutil.rmtree(primed, ignore_errors=True)
    return records


def _measure_chunks(
    measured: Measured, given: argparse.Namespace, steps: harness.Steps
) -> list[Record]:
    records = []
    for round_ in range(given.runs):
        for name, read in contenders.CHUNK_READERS.items():
            if name in given.without:
                continue
            with steps.step(f"{measured.kind}, table: {name}, round {round_ + 1}"):
                found = harness.tried(partial(read, measured, "narrow"))
            records.append(_named(measured, "table", name, round_, found, steps))
    return records


def _named(
    measured: Measured, load: str, name: str, round_: int, found: Record, steps: harness.Steps
) -> Record:
    steps.say(
        f"    {name:26} "
        + str(
            found.get("failed")
            or f"{found['rows_per_s']:,} rows/s, {found['cpu_s_per_million']} CPU s/M"
        )
    )
    return {"server": measured.kind, "load": load, "contender": name, "round": round_, **found}


def summarise(records: Sequence[Record]) -> dict[str, float]:
    """Return the summary; what was not run is left out."""
    found: dict[str, float | None] = {}
    for kind in server.SERVERS:
        for load in server.LOADS:
            runs = select(records, server=kind, load=load)
            ours = select(runs, contender="batches")
            begin = f"{kind}_{load}"
            found[f"{begin}_rows_per_s"] = median(ours, "rows_per_s")
            found[f"{begin}_into_log_rows_per_s"] = median(
                select(runs, contender="headrace"), "rows_per_s"
            )
            found[f"{begin}_cpu_s_per_million"] = median(ours, "cpu_s_per_million")
            found[f"{begin}_waiting_share"] = _share(ours, "waited_s")
            for name in ("raw", *_PEERS):
                theirs = select(runs, contender=name)
                peer = name.replace("-", "_")
                found[f"{begin}_vs_{peer}"] = _over(ours, theirs, "rows_per_s")
        runs = select(records, server=kind, load="table")
        ours, theirs, bare = (select(runs, contender=name) for name in contenders.CHUNK_READERS)
        found[f"{kind}_chunk_rows_per_s"] = median(ours, "rows_per_s")
        found[f"{kind}_chunks_vs_connectorx"] = paired(ours, theirs, "rows_per_s")
        found[f"{kind}_chunks_cpu_of_connectorx"] = paired(ours, theirs, "cpu_s_per_million")
        # Where the time goes: no reader of one connection is faster than the server that selects.
        found[f"{kind}_chunks_vs_drain"] = paired(ours, bare, "rows_per_s")
        found[f"{kind}_drain_vs_connectorx"] = paired(bare, theirs, "rows_per_s")
        found[f"{kind}_chunks_server_share"] = _share(ours, "server_cpu_s")
        found[f"{kind}_chunks_waiting_share"] = _share(ours, "waited_s")
    return {name: value for name, value in found.items() if value is not None}


def _share(runs: Sequence[Mapping[str, Any]], field: str) -> float | None:
    """Return the median of a field's seconds over those of the run."""
    return median([{field: run[field] / run["run_s"]} for run in runs if field in run], field)


def _over(
    ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]], field: str
) -> float | None:
    """Return ours over theirs round by round, or over the median of one who had fewer rounds."""
    rates = [run[field] for run in theirs if run.get(field)]
    if len(rates) == len(ours):
        return paired(ours, theirs, field)
    mine = median(ours, field)
    return mine / statistics.median(rates) if rates and mine is not None else None


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = harness.parser("mysql", __doc__ or "", runs=5)
    add = parser.add_argument
    kinds, loads = list(server.SERVERS), list(server.LOADS)
    add("--servers", nargs="+", choices=kinds, default=kinds, help="measured one after the other")
    add("--loads", nargs="+", choices=loads, default=loads, help="of the log")
    add("--rows", type=int, default=2_000_000, help="of the narrow load; others less (2,000,000)")
    add("--few", type=int, default=200_000, help="rows of whoever needs minutes (200,000)")
    add("--peer-runs", type=int, default=2, help="rounds in which others take part (2)")
    add(
        "--without",
        nargs="+",
        choices=(*_PEERS, "connectorx"),
        default=[],
        help="others that are left out",
    )
    given = parser.parse_args(arguments)
    if given.quick:
        given.rows, given.few, given.runs = min(given.rows, 20_000), min(given.few, 10_000), 1
    given.peer_runs = min(given.peer_runs, given.runs)
    for name, module in (("connectorx",) * 2, ("python-mysql-replication", "pymysqlreplication")):
        if name not in given.without and importlib.util.find_spec(module) is None:
            parser.error(
                f"{name} is not installed: pip install 'headrace[bench]', or --without {name}"
            )
    if "mysql" in given.servers and not mysql_server.installed():
        parser.error("MySQL is not there: make setup-tests unpacks it; or give --servers mariadb")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and keep the result."""
    given = _parse(arguments)
    measured_on = harness.machine()
    records, versions, count = list[Record](), dict[str, str](), 0
    for kind in given.servers:
        for load in given.loads:
            count += 1 + sum(rounds for _, rounds in _readers(given, kind, load))
        count += given.runs * (3 - ("connectorx" in given.without))
    with harness.Steps("mysql", count).shown() as steps, harness.until_stopped(steps):
        for kind in given.servers:
            with server.running(kind) as running:
                measured = Measured(running, kind, given.few)
                versions[kind] = str(running.query("SELECT version()")[0][0])
                for name in given.loads:
                    records += _measure_load(measured, given, server.LOADS[name], steps)
                if "narrow" in given.loads:
                    records += _measure_chunks(measured, given, steps)
    path = harness.write(
        "mysql",
        seed=_SEED,
        sizes={
            "rows": {name: server.LOADS[name].rows(given.rows) for name in given.loads},
            "rows_of_python_mysql_replication": given.few,
            "rounds": given.runs,
            "peer_rounds": given.peer_runs,
            "servers": versions,
            "loads": {name: server.LOADS[name].title for name in given.loads},
            "decoder": next(iter(ENGINES)),
            "debezium": jars.version("mysql"),
        },
        runs=records,
        summary=summarise(records),
        measured_on=measured_on,
        folder=harness.results_folder(given),
    )
    print(f"kept in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
