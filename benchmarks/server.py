"""The server that everything is measured on, and replication slots that can be read again and again.

In: nothing. Out: an embedded PostgreSQL, durable, reached by Unix socket and by TCP; copies of a slot, so that
every contender reads the same stretch of the log from its beginning.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

from benchmarks.processes import child_titled, tree_cpu_s
from headrace.sources.postgres.lsn import format_lsn, parse_lsn
from headrace.testing.ports import free_port
from headrace.testing.postgres import EmbeddedPostgres

__all__ = ["TRANSPORTS", "BenchServer", "Region"]

TRANSPORTS = ("unix", "tcp")

_SETTINGS: Mapping[str, str] = {
    "autovacuum": "off",
    "checkpoint_timeout": "30min",
    "max_wal_size": "24GB",
    "max_wal_senders": "40",
    "max_replication_slots": "80",
    "shared_buffers": "1GB",
    "synchronous_commit": "on",
}
"""Over the settings every embedded server has; fsync is on."""

_MARKS = "bench_marks"
_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class Region:
    """A stretch of the log that can be read again.

    Attributes:
        slot: stands before its first change; only ever copied.
        publication: made before the slot.
        tables: patterns of the tables it changes.
        until: LSN between its last change and the small transactions that end it.
        changes: rows inserted, updated or deleted in it.
    """

    slot: str
    publication: str
    tables: tuple[str, ...]
    until: int
    changes: int

    @property
    def end(self) -> str:
        """``until`` as the server writes it."""
        return format_lsn(self.until)


class BenchServer(EmbeddedPostgres):
    """The newest embedded PostgreSQL with every write synced."""

    DATABASE = "bench"

    def __init__(self) -> None:
        super().__init__(settings=_SETTINGS, durable=True)
        self.port = free_port()
        self._numbers = itertools.count(1)

    def url(self, database: str = "postgres") -> str:
        """Return the URL of the Unix socket."""
        return f"{super().url(database)}&port={self.port}"

    def address(self, transport: str) -> str:
        """Return the URL of the benchmark's database over a transport of `TRANSPORTS`."""
        if transport == "unix":
            return self.url(self.DATABASE)
        return f"postgresql://postgres@127.0.0.1:{self.port}/{quote(self.DATABASE)}?sslmode=disable"

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """Open a connection to the benchmark's database, each statement on its own."""
        return psycopg.connect(self.url(self.DATABASE), autocommit=True, **options)

    def run(self, *statements: str) -> None:
        """Run statements in the benchmark's database."""
        self.execute(*statements, database=self.DATABASE)

    def value(self, query: str) -> Any:
        """Return the single value of a query."""
        with self.connect() as connection:
            row = connection.execute(query.encode()).fetchone()
            assert row is not None
            return row[0]

    def cpu_s(self) -> float:
        """Return the CPU seconds of all processes of the server since it was started."""
        assert self._process is not None
        return tree_cpu_s(self._process.pid)

    def start_empty(self) -> None:
        """Make the benchmark's database with the table whose rows end a region."""
        self.create_database(self.DATABASE)
        self.run(f"CREATE TABLE {_MARKS} (id bigserial PRIMARY KEY)")

    def _endpoint(self) -> dict[str, str]:
        return super()._endpoint() | {"listen_addresses": "127.0.0.1", "port": str(self.port)}

    # -- slots ----------------------------------------------------------------------------------

    def publish(self, name: str, tables: tuple[str, ...]) -> None:
        """Publish tables under a name."""
        self.run(
            f"CREATE PUBLICATION {name} FOR TABLE {', '.join(tables)} "
            "WITH (publish_via_partition_root = true)"
        )

    def begin_region(self, name: str, tables: tuple[str, ...]) -> None:
        """Publish tables, and the rows that end a region, under a name; then make a slot of that name."""
        self.publish(name, (*tables, _MARKS))
        self.run(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")

    def end_region(self, name: str, tables: tuple[str, ...], changes: int) -> Region:
        """Close the stretch that began with `begin_region`.

        It ends with small transactions: a reader that drains the transaction at its end position would else
        be charged for a large one that others leave alone.
        """
        with self.connect() as connection:
            insert = f"INSERT INTO {_MARKS} DEFAULT VALUES".encode()
            for _ in range(20):
                connection.execute(insert)
            until = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
            for _ in range(5):
                connection.execute(insert)
            connection.execute("CHECKPOINT")
        assert until is not None
        patterns = tuple(f"public.{table}" for table in (*tables, _MARKS))
        return Region(name, name, patterns, parse_lsn(until[0]), changes)

    @contextlib.contextmanager
    def slot_copy(self, region: Region) -> Iterator[str]:
        """Give a slot at the region's beginning; it is removed afterwards."""
        copy = f"pg_copy_logical_replication_slot('{region.slot}', '{{name}}')"
        with self._slot(copy) as name:
            yield name

    @contextlib.contextmanager
    def fresh_slot(self) -> Iterator[str]:
        """Give a slot at the present end of the log; it is removed afterwards."""
        with self._slot("pg_create_logical_replication_slot('{name}', 'pgoutput')") as name:
            yield name

    @contextlib.contextmanager
    def _slot(self, call: str) -> Iterator[str]:
        name = f"run_{next(self._numbers)}"
        self.run("SELECT " + call.format(name=name))
        try:
            yield name
        finally:
            self.drop_slot(name)

    def is_read(self, slot: str) -> bool:
        """Return whether somebody reads a slot."""
        return bool(
            self.value(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'")
        )

    def sender(self) -> int | None:
        """Return the process that is sending the log to somebody, None while there is none.

        Costs the server nothing: who waits for one by this leaves the processors to what is measured.
        """
        return child_titled(self.pid, "START_REPLICATION")

    def drop_slot(self, name: str) -> None:
        """Remove a slot as soon as its reader is gone."""
        deadline = time.monotonic() + _DEADLINE_S
        while True:
            try:
                self.run(f"SELECT pg_drop_replication_slot('{name}')")
                return
            except psycopg.errors.ObjectInUse:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def stream_options(self, slot: str) -> dict[str, str]:
        """Return the options with which a slot is being read right now, empty while it is not."""
        with self.connect() as connection:
            row = connection.execute(
                "SELECT query FROM pg_stat_activity a JOIN pg_replication_slots s ON s.active_pid = a.pid "
                "WHERE s.slot_name = %s AND query LIKE 'START_REPLICATION%%'",
                (slot,),
            ).fetchone()
        found = re.findall(r"(\w+) '((?:[^']|'')*)'", row[0]) if row else []
        return {name: value.strip('"') for name, value in found}

    # -- what the server used --------------------------------------------------------------------

    def ended_children_cpu_s(self) -> float:
        """Return the CPU time of all server processes that have ended; WAL senders end with their reader."""
        fields = (
            Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        )
        return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
