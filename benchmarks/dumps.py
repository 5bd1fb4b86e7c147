"""Who copies a whole table while its log is read: our windows, ADBC's plain select, Debezium's incremental snapshot.

ADBC reads no log and keeps nothing; the other two deliver what changes meanwhile, in order. Under load the load's own
rate is counted by what it committed, and its latency by who read it, before the copy and during it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.captures import CaptureRun, capture_run
from benchmarks.debezium.engine import READY_S, SETTINGS, DebeziumRun, debezium_run
from benchmarks.latency import Load, finish, percentiles, reading
from benchmarks.processes import Child, Usage, python
from benchmarks.server import BenchServer
from headrace.replicator.config import DumpConfig

__all__ = [
    "SNAPSHOTS",
    "TABLE",
    "UPDATE",
    "DumpLoad",
    "adbc",
    "debezium",
    "headrace",
    "prepare",
    "selects",
]

TABLE = "big"
_SIGNALS = "signals"
_HEARTBEAT = "heartbeat"
_LIMIT_S = 3600.0
_SIGNAL_AGAIN_S = 15.0
_CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
UPDATE = f"UPDATE {TABLE} SET at_us = {_CLOCK} WHERE id = :id;"
# About as many as our own chunks come to have beside such a load.
_PAGE_ROWS = 8_192
# Time for the load to become steady before it counts.
_SETTLE = 0.25

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DumpLoad:
    """What goes on meanwhile.

    Attributes:
        name: as in results.
        rate: updates per second, one a transaction; 0 for as many as the server takes.
        seconds: how long it runs before the copy, to compare with.
    """

    name: str
    rate: float
    seconds: float


SNAPSHOTS: Mapping[str, Mapping[str, str]] = {
    f"{kind}-{chunk}": {
        "incremental.snapshot.chunk.size": str(chunk),
        **(
            {"read.only": "true", "signal.enabled.channels": "file", "heartbeat.interval.ms": "200"}
            if kind == "read-only"
            else {
                "signal.enabled.channels": "source",
                "signal.data.collection": f"public.{_SIGNALS}",
            }
        ),
    }
    for kind in ("signals", "read-only")
    for chunk in (1024, 10_000, 100_000)
    # Without a signal table a chunk as large as the table waits for ever on an idle server.
    if (kind, chunk) != ("read-only", 100_000)
}
"""Debezium's ways to read a table while it streams: with a signal table or without, by size of chunk."""


def prepare(server: BenchServer, rows: int) -> None:
    """Make and fill the table, anew if it is there, and what Debezium needs beside it."""
    server.run(
        f"DROP PUBLICATION IF EXISTS {TABLE}",
        f"DROP TABLE IF EXISTS {TABLE}, {_SIGNALS}, {_HEARTBEAT}",
        f"CREATE TABLE {TABLE} (id bigint PRIMARY KEY, at_us bigint NOT NULL DEFAULT 0, a int, "
        "code text, at timestamptz, amount numeric(12, 2))",
        f"INSERT INTO {TABLE} SELECT i, 0, (i % 100000)::int, substr(md5(i::text), 1, 16), "
        "timestamptz '2026-01-01' + i * interval '1 second', (i * 31 % 1000000)::numeric / 100 "
        f"FROM generate_series(1, {rows}) AS i",
        f"CREATE TABLE {_SIGNALS} (id text PRIMARY KEY, type text NOT NULL, data text)",
        f"CREATE TABLE {_HEARTBEAT} (id int PRIMARY KEY, at timestamptz)",
        f"VACUUM ANALYZE {TABLE}",
        "CHECKPOINT",
    )
    server.publish(TABLE, (TABLE, _SIGNALS, _HEARTBEAT))


# -- without a load -------------------------------------------------------------------------------


def adbc(server: BenchServer, rows: int, environment: Mapping[str, str] | None = None) -> Record:
    """Copy the table with ADBC."""
    command = python("benchmarks.adbc_child", server.address("tcp"), TABLE)
    usage = Child.run(command, _LIMIT_S, environment)
    _check(usage.said["rows"], rows)
    return _record(rows, usage.said["run_s"], usage.said["run_cpu_s"], usage)


def headrace(
    server: BenchServer, rows: int, dump: Mapping[str, Any], load: DumpLoad | None
) -> Record:
    """Copy the table in windows into the change log."""
    if load is not None:
        return _headrace_under_load(server, rows, dump, load)
    with (
        server.fresh_slot() as slot,
        capture_run(
            server.address("tcp"), [f"public.{TABLE}"], slot=slot, publication=TABLE, dump=dump
        ) as run,
    ):
        usage = Child.run(run.until_dumped(), _LIMIT_S)
        _check(run.dumped_rows(), rows)
    return _record(rows, usage.said["run_s"], usage.said["run_cpu_s"], usage)


def debezium(server: BenchServer, rows: int, snapshot: str, load: DumpLoad | None) -> Record:
    """Copy the table by an incremental snapshot."""
    with (
        server.fresh_slot() as slot,
        debezium_run(
            server,
            SETTINGS["connect"],
            slot=slot,
            publication=TABLE,
            tables=f"public.{TABLE},public.{_HEARTBEAT}",
            until="-1" if load else "snapshot",
            expected=0 if load else rows,
            events=load is not None,
            more={
                **SNAPSHOTS[snapshot],
                "notification.enabled.channels": "sink",
                "notification.sink.topic.name": "notes",
            },
        ) as run,
    ):
        run.child.until(lambda: server.is_read(slot), READY_S, "it reads the slot")
        if load is None:
            _signal(server, run, snapshot)
            usage = run.wait(_LIMIT_S)
            _check(usage.said["reads"], rows)
            return _snapshot_record(rows, usage)
        driver, before_us = _start(server, rows, load)
        began_us = time.time_ns() // 1000
        _signal(server, run, snapshot)
        run.child.until_said("snapshot COMPLETED", _LIMIT_S)
        ended_us = time.time_ns() // 1000
        driver.stop()
        finish(server, TABLE)
        usage = run.wait(_LIMIT_S)
        events = run.events()
    record = _snapshot_record(usage.said["reads"], usage)
    return record | _effect(events[:, 1], events[:, 2], before_us, began_us, ended_us)


def _signal(server: BenchServer, run: DebeziumRun, snapshot: str) -> None:
    """Ask for the snapshot, the way its setting listens to."""
    data = json.dumps({"data-collections": [f"public.{TABLE}"], "type": "incremental"})
    if "read.only" not in SNAPSHOTS[snapshot]:
        name = time.time_ns()
        server.run(f"INSERT INTO {_SIGNALS} VALUES ('{name}', 'execute-snapshot', '{data}')")
        run.child.until_said("snapshot STARTED", _LIMIT_S)
        return
    signal = json.dumps({"id": "bench", "type": "execute-snapshot", "data": json.loads(data)})
    written = 0.0

    def began() -> bool:
        # It reads the file and empties it; what is written before it looks for the first time is lost.
        nonlocal written
        if time.monotonic() - written > _SIGNAL_AGAIN_S:
            written = time.monotonic()
            run.signals.write_text(signal + "\n", encoding="utf-8")
        return run.child.said("snapshot STARTED")

    run.child.until(began, READY_S, "the snapshot begins")


def _snapshot_record(rows: int, usage: Usage) -> Record:
    said = usage.said
    seconds = (said["last_read_ms"] - said["first_read_ms"]) / 1000
    return _record(rows, seconds, said["last_read_cpu_s"] - said["first_read_cpu_s"], usage)


# -- under a load ---------------------------------------------------------------------------------


def _start(server: BenchServer, rows: int, load: DumpLoad) -> tuple[Load, int]:
    """Start the load, let it run for its time, and say from when on it counts."""
    driver = Load(server, UPDATE, load.rate, _LIMIT_S, rows=rows)
    time.sleep(load.seconds * _SETTLE)
    before_us = time.time_ns() // 1000
    time.sleep(load.seconds)
    return driver, before_us


def _headrace_under_load(
    server: BenchServer, rows: int, dump: Mapping[str, Any], load: DumpLoad
) -> Record:
    table = f"public.{TABLE}"

    def copy(run: CaptureRun, capture: Child) -> None:
        request = run.dump(table)
        capture.until(lambda: run.is_dumped(request), _LIMIT_S, "the dump is over")

    return _log_under_load(server, rows, dump, load, copy)


def selects(server: BenchServer, rows: int, load: DumpLoad) -> Record:
    """Read the table as our dump does while our capture reads the log, and keep nothing of it."""

    def copy(_run: CaptureRun, _capture: Child) -> None:
        given = (server.address("tcp"), TABLE, str(_PAGE_ROWS), str(DumpConfig().load))
        _check(Child.run(python("benchmarks.select_child", *given), _LIMIT_S).said["rows"], rows)

    return _log_under_load(server, rows, {}, load, copy)


def _log_under_load(
    server: BenchServer,
    rows: int,
    dump: Mapping[str, Any],
    load: DumpLoad,
    copy: Callable[[CaptureRun, Child], None],
) -> Record:
    """Capture the log under a load, and let the table be copied meanwhile."""
    table = f"public.{TABLE}"
    with (
        server.fresh_slot() as slot,
        capture_run(server.address("tcp"), [table], slot=slot, publication=TABLE, dump=dump) as run,
    ):
        run.skip_dump([table])
        with run.started() as capture, reading(run, capture, TABLE) as reader:
            reader.warm(server)
            driver, before_us = _start(server, rows, load)
            began_us = time.time_ns() // 1000
            copy(run, capture)
            ended_us = time.time_ns() // 1000
            driver.stop()
            seen = reader.finish(server)
            usage = capture.end()
    seconds = (ended_us - began_us) / 1e6
    # Of the whole process: it read the log too, before and meanwhile.
    record = _record(rows, seconds, usage.cpu_s, usage)
    return record | _effect(seen[:, 1], seen[:, 3], before_us, began_us, ended_us)


def _effect(
    sent_us: npt.NDArray[np.int64],
    seen_us: npt.NDArray[np.int64],
    before_us: int,
    began_us: int,
    ended_us: int,
) -> Record:
    """Compare the load and its latency before the copy with those during it."""
    record: Record = {}
    rates = {}
    for name, first, last in (("before", before_us, began_us), ("during", began_us, ended_us)):
        kept = (sent_us >= first) & (sent_us < last)
        rates[name] = int(kept.sum()) / ((last - first) / 1e6)
        record[f"load_per_s_{name}"] = round(rates[name], 1)
        if kept.any():
            found = percentiles(seen_us[kept] - sent_us[kept], sent_us[kept])
            record |= {
                f"{key}_{name}": found[key] for key in ("p50_ms", "p95_ms", "p99_ms", "max_ms")
            }
    return record | {
        "load_loss": round(1 - rates["during"] / rates["before"], 4) if rates["before"] else None,
        "events": len(sent_us),
    }


def _record(rows: int, run_s: float, cpu_s: float, usage: Usage) -> Record:
    return {
        "rows": rows,
        "run_s": round(run_s, 4),
        "rows_per_s": round(rows / run_s),
        "cpu_s_per_million": round(cpu_s / rows * 1e6, 4),
        "rss_mib": round(usage.rss_mib, 1),
        "process_s": round(usage.wall_s, 4),
    }


def _check(copied: int, rows: int) -> None:
    if copied != rows:
        raise SystemExit(f"{copied} rows copied of {rows}: no figure")
