"""Who reads a stretch of the binary log, or a table. Each run is one flat record.

``run_s`` is the time from the first connection to the last change: durable in the change log for ``headrace``, an Arrow
batch for ``batches``, a received byte for ``raw``, whatever the others hand out for them. CPU time is that of the
reading process alone.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pymysql

from benchmarks import programs
from benchmarks.captures import CaptureRun, count_changes
from benchmarks.debezium.jars import debezium_jars
from benchmarks.mysql.server import DATABASE, Region
from benchmarks.processes import Child, Usage, cpu_s, python, running
from headrace.replicator import config_file
from headrace.replicator.databases import open_database
from headrace.state.incarnation import Incarnation
from headrace.state.store import StateStore
from headrace.testing.mysql_protocol_server import MysqlProtocolServer

__all__ = ["CHUNK_READERS", "LOG_READERS", "Measured", "debezium_primed", "debezium_read"]

Record = dict[str, Any]
_LIMIT_S = 1800.0
_HERE = Path(__file__).parent
_HEAP = "-Xmx4g"
_PRIMING = 20


@dataclass(frozen=True, slots=True)
class Measured:
    """What is measured on.

    Attributes:
        server: running.
        kind: of the server.
        few: changes that are enough for readers that take minutes for a million.
    """

    server: MysqlProtocolServer
    kind: str
    few: int

    @property
    def url(self) -> str:
        """Of the server, without a database."""
        return self.server.url()


def _record(rows: int, usage: Usage) -> Record:
    said = usage.said
    waited = {"waited_s": round(said["waited_s"], 4)} if "waited_s" in said else {}
    return {
        "changes": rows,
        "run_s": round(said["run_s"], 4),
        "rows_per_s": round(rows / said["run_s"]),
        "cpu_s_per_million": round(said["run_cpu_s"] / rows * 1e6, 4),
        "rss_mib": round(usage.rss_mib, 1),
        **waited,
    }


def _child(how: str, measured: Measured, region: Region) -> Usage:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(asdict(region), file)
        file.flush()
        return Child.run(
            python("benchmarks.mysql.log_child", how, measured.url, file.name), _LIMIT_S
        )


def _raw(measured: Measured, region: Region) -> Record:
    usage = _child("raw", measured, region)
    return _record(region.changes, usage) | {
        "mb_per_s": round(usage.said["bytes"] / usage.said["run_s"] / 1e6, 1)
    }


def _none_before(measured: Measured) -> None:
    """Let the server let go of whoever read before: on MariaDB a reader of the same id waits 0.1 s for that."""
    readers = "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
    while before := measured.server.query(readers):
        for (number,) in before:
            with contextlib.suppress(pymysql.err.MySQLError):
                measured.server.query(f"KILL {number}")


def _batches(measured: Measured, region: Region) -> Record:
    _none_before(measured)
    usage = _child("batches", measured, region)
    if usage.said["rows"] not in (region.changes, 2 * region.changes):
        raise SystemExit(f"{usage.said['rows']} rows read of {region.changes} changes: no figure")
    return _record(region.changes, usage)


def _headrace(measured: Measured, region: Region) -> Record:
    _none_before(measured)
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        table = f"{DATABASE}.{region.load}"
        file = folder / "bench.yaml"
        value = {
            "name": "bench",
            "source": {"type": "mysql", "url": measured.url, "tables": [table]},
            "target": {"type": "delta", "path": str(folder / "lake")},
            "state": {"dir": str(folder / "state")},
            "changelog": {"budget": "200 GiB"},
        }
        file.write_text(json.dumps(value), encoding="utf-8")
        run, config = CaptureRun(file, (table,)), config_file.load(file)
        run.paths.create()
        run.skip_dump([table])
        # As if it had been here before: a capture that begins anew reads from the end of the log on.
        with contextlib.closing(StateStore(run.paths.database)) as store:
            store.write([Incarnation(open_database(config).incarnation()).keep])
        region.stand_before(run.paths.root)
        usage = Child.run(run.until_scn(region.until), _LIMIT_S)
        counted = count_changes(run.changelog)
        if counted != region.changes:
            raise SystemExit(f"{counted} changes captured of {region.changes}: no figure")
        return _record(region.changes, usage)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _python(measured: Measured, region: Region) -> Record:
    some = replace(region, changes=min(region.changes, measured.few))
    usage = _child("python", measured, some)
    return _record(usage.said["rows"], usage)


def _go(measured: Measured, region: Region) -> Record:
    arguments = {
        "flavor": measured.kind,
        "port": measured.server.port,
        "user": "headrace",
        "file": region.file,
        "position": region.position,
        "expected": region.changes,
    }
    command = programs.go_command(_HERE / "go_mysql")
    command += [f"-{name}={value}" for name, value in arguments.items()]
    return _record(region.changes, Child.run(command, _LIMIT_S, _password(measured)))


def _java(measured: Measured, region: Region) -> Record:
    java, *program = programs.java_command(_HERE / "Binlog.java", debezium_jars("mysql"))
    given = (measured.server.port, "headrace", region.file, region.position, region.changes)
    command = [java, _HEAP, *program, *map(str, given)]
    return _record(region.changes, Child.run(command, _LIMIT_S, _password(measured)))


def _password(measured: Measured) -> Mapping[str, str]:
    return {"BENCH_PASSWORD": measured.server.PASSWORD}


LOG_READERS: Mapping[str, Callable[[Measured, Region], Record]] = {
    "raw": _raw,
    "batches": _batches,
    "headrace": _headrace,
    "go-mysql": _go,
    "java-connector": _java,
    "python-mysql-replication": _python,
}
"""By name, in the order in which they take turns; Debezium is apart, because it has to have been there before."""


def _table(how: str) -> Callable[[Measured, str], Record]:
    def read(measured: Measured, table: str) -> Record:
        command = python("benchmarks.mysql.chunk_child", how, measured.url, table)
        before = cpu_s(measured.server.pid)
        usage = Child.run(command, _LIMIT_S)
        spent_s = cpu_s(measured.server.pid) - before
        return _record(int(usage.said["rows"]), usage) | {"server_cpu_s": round(spent_s, 3)}

    return read


CHUNK_READERS: Mapping[str, Callable[[Measured, str], Record]] = {
    "chunks": _table("chunks"),
    "connectorx": _table("connectorx"),
    "drain": _table("drain"),
}


# -- Debezium -----------------------------------------------------------------------------------


@contextlib.contextmanager
def _engine(
    measured: Measured, folder: Path, tables: str, expected: int, flush_ms: int = 10_000
) -> Iterator[Child]:
    properties = {
        "bench.format": "connect",
        "bench.expected": str(expected),
        "bench.until": "",
        "bench.events": "",
        "name": "bench",
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(measured.server.port),
        "database.user": "headrace",
        "database.password": measured.server.PASSWORD,
        "database.server.id": "4000000005",
        "driver.allowPublicKeyRetrieval": "true",
        "topic.prefix": "bench",
        "table.include.list": tables,
        "snapshot.mode": "no_data",
        "tombstones.on.delete": "false",
        "max.batch.size": "8192",
        "max.queue.size": "65536",
        "poll.interval.ms": "10",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(folder / "history"),
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": str(flush_ms),
    }
    text = "".join(f"{key}={value}\n" for key, value in properties.items())
    (folder / "run.properties").write_text(text, encoding="utf-8")
    java, *program = programs.engine_command("mysql")
    command = [java, _HEAP, "-XX:+UseParallelGC", *program, str(folder / "run.properties")]
    with running(command) as child:
        yield child


def debezium_primed(measured: Measured, table: str) -> Path:
    """Let Debezium learn a table's shape and the end of the log, and return the folder of what it keeps."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-debezium-"))
    keys = itertools.count(1)

    def seen() -> bool:
        # It says nowhere that it has begun to read.
        statement = f"INSERT INTO {table} (id) VALUES (-{next(keys)})"
        measured.server.execute(statement, database=DATABASE)
        return not child.alive

    # Until its place behind a row is written down: before, it would begin with another snapshot, at the end of the log.
    with _engine(measured, folder, f"{DATABASE}.{table}", _PRIMING, flush_ms=0) as child:
        child.until(seen, 180.0, "it has seen a row")
        child.wait(1.0)
    return folder


def debezium_read(measured: Measured, region: Region, primed: Path) -> Record:
    """Read a region from where Debezium was when it had learnt the table, with a consumer that discards."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-debezium-"))
    try:
        shutil.copytree(primed, folder, dirs_exist_ok=True)
        table = f"{DATABASE}.{region.load}"
        with _engine(measured, folder, table, region.changes) as child:
            usage = child.wait(_LIMIT_S)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    said = usage.said
    took = {
        "run_s": (said["last_ms"] - said["engine_ms"]) / 1000,
        "run_cpu_s": said["last_cpu_s"] - said["engine_cpu_s"],
    }
    record = _record(region.changes, replace(usage, said=took))
    if said["last_ms"] > said["half_ms"]:
        half_s = (said["last_ms"] - said["half_ms"]) / 1000
        record["steady_rows_per_s"] = round(region.changes / 2 / half_s)
        cpu = said["last_cpu_s"] - said["half_cpu_s"]
        record["steady_cpu_s_per_million"] = round(cpu / (region.changes / 2) * 1e6, 4)
    return record
