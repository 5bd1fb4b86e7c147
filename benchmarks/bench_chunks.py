"""How fast a table is copied while its log is followed, and what that costs the log and the source's own work.

Our dump in watermark windows goes into the change log on disk; ADBC selects the table into Arrow and drops it;
Debezium's incremental snapshot hands it to a consumer that does nothing. Each is tried on an idle server, at a steady
load (latency of the log before and during) and at full load (what the load loses). Our dump takes all of one
connection's time on the idle server and at full load, and its default share of it at the steady load. There the same
selects at the same share, of which nothing is kept, stand beside it: what they cost the log is not the copy's. Under
load the rate of a copy counts from the request to its end.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks import dumps, harness
from benchmarks.debezium import jars
from benchmarks.harness import least, median, paired, select
from benchmarks.server import BenchServer
from benchmarks.workloads import SEED
from headrace.sources.postgres.decoder import engine

US = "headrace"
ADBC = "adbc"
SELECTS = "selects"
_LOADS = ("idle", "steady", "full")
_BUSY_SNAPSHOTS = ("signals-1024", "signals-10000", "read-only-10000")

Record = dict[str, Any]
Runs = Sequence[Mapping[str, Any]]


def _contenders(given: argparse.Namespace, load: str) -> list[str]:
    """Return who copies under a load, in turn."""
    found = [US]
    if load == "idle" and given.adbc:
        found.append(ADBC)
    if load == "steady":
        found.append(SELECTS)
    if given.debezium:
        snapshots = dumps.SNAPSHOTS if load == "idle" else _BUSY_SNAPSHOTS
        found += [f"debezium {name}" for name in snapshots]
    return found


def _copy(
    server: BenchServer,
    rows: int,
    settings: Mapping[str, Any],
    contender: str,
    load: dumps.DumpLoad | None,
) -> Record:
    if contender == US:
        share = {} if load is not None and load.rate else {"load": 1.0}
        return dumps.headrace(server, rows, {**share, **settings}, load)
    if contender == ADBC:
        return dumps.adbc(server, rows)
    if contender == SELECTS:
        assert load is not None
        return dumps.selects(server, rows, load)
    return dumps.debezium(server, rows, contender.removeprefix("debezium "), load)


def _measure(
    server: BenchServer, given: argparse.Namespace, steps: harness.Steps, records: list[Record]
) -> None:
    filled = 0
    for name in given.loads:
        rows = given.idle_rows if name == "idle" else given.rows
        if rows != filled:
            with steps.step(f"a table of {rows:,} rows is filled"):
                dumps.prepare(server, rows)
            filled = rows
        rate = {"idle": None, "steady": given.rate, "full": 0.0}[name]
        load = None if rate is None else dumps.DumpLoad(name, rate, given.seconds)
        for round_ in range(given.runs):
            for contender in _contenders(given, name):
                if contender.startswith("debezium") and round_ >= given.peer_runs:
                    continue
                with steps.step(f"{name}: {contender}, round {round_ + 1}"):
                    call = partial(_copy, server, rows, given.dump, contender, load)
                    found = call() if contender == US else harness.tried(call)
                records.append({"load": name, "contender": contender, "round": round_, **found})
                steps.say(f"    {contender:24} {_figures(found)}")


def _figures(found: Record) -> str:
    if "failed" in found:
        return str(found["failed"])
    text = f"{found['rows_per_s']:,} rows/s"
    if found.get("load_loss") is not None:
        text += f" · load loses {found['load_loss']:.1%}"
    if "p99_ms_during" in found and "p99_ms_before" in found:
        text += f" · p99 {found['p99_ms_before']:.1f} → {found['p99_ms_during']:.1f} ms"
    return text


def summarise(records: Runs) -> dict[str, float]:
    """Return the summary; what was not run is left out."""
    found: dict[str, float | None] = {}
    idle = select(records, load="idle")
    found["idle_vs_adbc"] = paired(
        select(idle, contender=US), select(idle, contender=ADBC), "rows_per_s"
    )
    found["idle_vs_debezium_incremental"] = _against_best(idle)
    found["idle_rows_per_s"] = median(select(idle, contender=US), "rows_per_s")
    for load in ("steady", "full"):
        runs = select(records, load=load)
        ours = select(runs, contender=US)
        found[f"{load}_load_vs_debezium_incremental"] = _against_best(runs)
        found[f"{load}_load_loss"] = median(ours, "load_loss")
        found[f"{load}_load_loss_debezium_least"] = least(
            median(select(runs, contender=name), "load_loss") for name in _debezium_names(runs)
        )
    steady = select(records, load="steady")
    found["log_p99_ratio_during_dump"] = _p99_ratio(select(steady, contender=US))
    found["log_p99_ratio_during_selects"] = _p99_ratio(select(steady, contender=SELECTS))
    found["log_p99_ms_during_dump"] = median(select(steady, contender=US), "p99_ms_during")
    found["log_p99_ratio_debezium_best"] = least(
        _p99_ratio(select(steady, contender=name)) for name in _debezium_names(steady)
    )
    return {name: value for name, value in found.items() if value is not None}


def _debezium_names(runs: Runs) -> list[str]:
    return sorted({run["contender"] for run in runs if run["contender"].startswith("debezium ")})


def _against_best(runs: Runs) -> float | None:
    """Return our rate over that of Debezium's fastest setting."""
    rated = [select(runs, contender=name) for name in _debezium_names(runs)]
    best = max(rated, key=lambda some: median(some, "rows_per_s") or 0.0, default=[])
    return paired(select(runs, contender=US), best, "rows_per_s")


def _p99_ratio(runs: Runs) -> float | None:
    ratios = [
        run["p99_ms_during"] / run["p99_ms_before"]
        for run in runs
        if run.get("p99_ms_before") and run.get("p99_ms_during")
    ]
    return statistics.median(ratios) if ratios else None


def _setting(text: str) -> tuple[str, Any]:
    key, _, value = text.partition("=")
    return key, json.loads(value)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = harness.parser("chunks", __doc__ or "", runs=5)
    add = parser.add_argument
    add("--rows", type=int, default=5_000_000, help="of the table (5,000,000)")
    add("--idle-rows", type=int, help="of the table on the idle server; as --rows when absent")
    add("--peer-runs", type=int, default=3, help="rounds in which Debezium takes part (3)")
    add("--seconds", type=float, default=20, help="a load runs before the copy (20)")
    add("--rate", type=float, default=500, help="transactions per second of the steady load (500)")
    add("--loads", nargs="+", choices=_LOADS, default=list(_LOADS), help="what goes on meanwhile")
    add(
        "--dump",
        nargs="+",
        type=_setting,
        default=[],
        metavar="KEY=VALUE",
        help="settings of the configuration's section dump; the shipped ones when absent",
    )
    add("--without-debezium", dest="debezium", action="store_false", help="leave Debezium out")
    add("--without-adbc", dest="adbc", action="store_false", help="leave ADBC out")
    given = parser.parse_args(arguments)
    given.dump = dict(given.dump)
    given.peer_runs = min(given.peer_runs, given.runs)
    if given.adbc and importlib.util.find_spec("adbc_driver_postgresql") is None:
        parser.error("ADBC is not installed: pip install 'headrace[bench]', or give --without-adbc")
    if given.quick:
        given.rows, given.seconds, given.runs = min(given.rows, 20_000), min(given.seconds, 2), 1
        given.idle_rows = None
        given.rate, given.peer_runs = min(given.rate, 100), 1
    return given


def _play(given: argparse.Namespace) -> tuple[list[Record], str]:
    """Return the records, and the server's version."""
    given.idle_rows = given.idle_rows or given.rows
    count = 1 + (given.idle_rows != given.rows and len(given.loads) > 1)
    for load in given.loads:
        names = _contenders(given, load)
        peers = sum(name.startswith("debezium") for name in names)
        count += given.runs * (len(names) - peers) + given.peer_runs * peers
    with BenchServer() as server, harness.Steps("chunks", count).shown() as steps:
        server.start_empty()
        version, records = server.value("SHOW server_version"), list[Record]()
        with harness.until_stopped(steps):
            _measure(server, given, steps, records)
        return records, version


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and keep the result."""
    given = _parse(arguments)
    measured_on = harness.machine()
    records, version = _play(given)
    path = harness.write(
        "chunks",
        seed=SEED,
        sizes={
            "rows": given.rows,
            "idle_rows": given.idle_rows,
            "rounds": given.runs,
            "debezium_rounds": given.peer_runs,
            "seconds": given.seconds,
            "steady_load_per_s": given.rate,
            "dump": given.dump or "as shipped",
            "postgres": version,
            "decoder": engine(),
            "debezium": jars.version("postgres") if given.debezium else "left out",
            "debezium_snapshots": {
                name: ", ".join(f"{key}={value}" for key, value in properties.items())
                for name, properties in dumps.SNAPSHOTS.items()
            },
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
