"""Debezium as a contender: the settings tried, and one run of its embedded engine.

In: a server, a slot, tables. Out: what `Engine.java` says about the run, with the process's CPU time and memory.
Every setting is one that its documentation names; none is left out of the results because it is slow.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks import programs
from benchmarks.processes import Child, Usage, running
from benchmarks.server import BenchServer

__all__ = ["READY_S", "SETTINGS", "DebeziumRun", "Setting", "debezium_run"]

READY_S = 180.0
_HEAP = "4g"
_TUNED: Mapping[str, str] = {
    "max.batch.size": "8192",
    "max.queue.size": "65536",
    "poll.interval.ms": "10",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to run it.

    Attributes:
        name: as in results.
        title: what is set.
        format: as `Engine.java` takes it.
        properties: of the engine and the connector.
    """

    name: str
    title: str
    format: str = "connect"
    properties: Mapping[str, str] = field(default_factory=dict)


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting(
            "connect",
            "Connect records; batches of 8,192, queue of 65,536, polled every 10 ms",
            properties=_TUNED,
        ),
        Setting("connect-default", "Connect records; all sizes and the poll of 500 ms as shipped"),
        Setting(
            "connect-poll-1ms",
            "Connect records; as connect, polled every 1 ms",
            properties={**_TUNED, "poll.interval.ms": "1"},
        ),
        Setting("json", "JSON with schemas, as shipped; sizes of connect", "json", _TUNED),
        Setting(
            "json-plain",
            "JSON without schemas; sizes of connect",
            "json",
            {
                **_TUNED,
                "key.converter.schemas.enable": "false",
                "value.converter.schemas.enable": "false",
                "converter.schemas.enable": "false",
            },
        ),
        Setting(
            "json-unordered",
            "JSON, record by record in parallel, order given up; sizes of connect",
            "json-each",
            {**_TUNED, "record.processing.order": "UNORDERED"},
        ),
    )
}
"""By name; the first is the one other benchmarks use."""


@dataclass(frozen=True, slots=True)
class DebeziumRun:
    """An engine that runs.

    Attributes:
        child: its process.
        folder: its offsets, signals and events.
    """

    child: Child
    folder: Path

    @property
    def signals(self) -> Path:
        """File whose lines are signals."""
        return self.folder / "signals.json"

    def wait(self, limit_s: float) -> Usage:
        """Return what the run took, once it has ended by itself."""
        return self.child.wait(limit_s)

    def events(self) -> npt.NDArray[np.int64]:
        """Return id, row's clock and time seen of every log event, one line each, after the end."""
        return np.loadtxt(self.folder / "events.txt", dtype=np.int64, ndmin=2).reshape(-1, 3)


@contextlib.contextmanager
def debezium_run(
    server: BenchServer,
    setting: Setting,
    *,
    slot: str,
    publication: str,
    tables: str,
    expected: int = 0,
    until: str = "",
    events: bool = False,
    heap: str = _HEAP,
    more: Mapping[str, str] | None = None,
) -> Iterator[DebeziumRun]:
    """Give a running engine; it is killed at the end of the block if it still runs.

    Args:
        server: measured one; reached over TCP.
        setting: of `SETTINGS`.
        slot: read from where it stands.
        publication: existing one.
        tables: regular expressions of captured tables, joined by commas.
        expected: records after which it ends, 0 for none.
        until: id of the log event that ends it, or ``snapshot``: then ``expected`` counts rows of a snapshot alone.
        events: whether `DebeziumRun.events` is wanted.
        heap: largest heap of the virtual machine.
        more: further properties.
    """
    folder = Path(tempfile.mkdtemp(prefix="headrace-debezium-"))
    run_file = folder / "run.properties"
    properties = {
        "bench.format": setting.format,
        "bench.expected": str(expected),
        "bench.until": until,
        "bench.events": str(folder / "events.txt") if events else "",
        "name": "bench",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": "postgres",
        "database.password": "none",
        "database.dbname": server.DATABASE,
        "database.sslmode": "disable",
        "plugin.name": "pgoutput",
        "slot.name": slot,
        "publication.name": publication,
        "publication.autocreate.mode": "disabled",
        "snapshot.mode": "no_data",
        "table.include.list": tables,
        "topic.prefix": "bench",
        "tombstones.on.delete": "false",
        "signal.file": str(folder / "signals.json"),
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": "10000",
        **setting.properties,
        **(more or {}),
    }
    text = "".join(f"{key}={value}\n" for key, value in properties.items())
    run_file.write_text(text, encoding="utf-8")
    java, *program = programs.engine_command()
    options = [f"-Xmx{heap}", "-XX:+UseParallelGC"]
    try:
        with running([java, *options, *program, str(run_file)]) as child:
            yield DebeziumRun(child, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
