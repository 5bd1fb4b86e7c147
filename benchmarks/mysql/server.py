"""The server that is measured on, its loads, and the stretch of the log that a load leaves.

In: the kind of server. Out: a durable server of its own, and `Region`s that every contender reads from the beginning.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.sources.mysql.connection import connect
from headrace.sources.mysql.numbers import GtidNumbers
from headrace.sources.mysql.position import Place
from headrace.sources.mysql.settings import MysqlSettings
from headrace.sources.mysql.stream import AcknowledgedPosition
from headrace.sources.mysql.vendors import vendor_of
from headrace.testing.mariadb_server import MariadbServer
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from headrace.testing.mysql_server import MysqlServer

__all__ = ["DATABASE", "LOADS", "SERVERS", "Load", "Region", "begin", "record", "running"]

DATABASE = "bench"
SERVERS: Mapping[str, type[MysqlProtocolServer]] = {"mariadb": MariadbServer, "mysql": MysqlServer}

_SETTINGS: Mapping[str, str] = {
    "innodb_buffer_pool_size": "1G",
    "max_binlog_size": "1G",
    "max_allowed_packet": "64M",
}
_CAPACITY: Mapping[str, str] = {
    "mariadb": "innodb_log_file_size",
    "mysql": "innodb_redo_log_capacity",
}

_NARROW = "id bigint PRIMARY KEY, a int, b smallint unsigned, note varchar(40), amount decimal(10, 2), at datetime(3)"
_NARROW_ROW = (
    "{base} + i, (i * 7919) % 100000, i % 60000, concat('note ', i % 1000), (i * 31 % 1000000) / 100, "
    "date_add('2026-01-01', INTERVAL i SECOND)"
)
_WIDE = "id bigint PRIMARY KEY, a int, " + ", ".join(f"t{n} varchar(245)" for n in range(10))
_WIDE_ROW = "{base} + i, i % 1000, " + ", ".join(
    f"left(repeat(sha2(i + {n}, 256), 4), 235)" for n in range(10)
)
_BATCH = 10_000
_UPDATED_AT_ONCE = 20


@dataclass(frozen=True, slots=True)
class Region:
    """A stretch of the log, from a load's first change to the end of the log.

    Attributes:
        load: its name; also its table's.
        start: where it begins, as `headrace.sources.mysql.position.Resume` renders it.
        file: the same place by file.
        position: and position.
        until: SCN above all its transactions but the last.
        changes: rows inserted or updated.
    """

    load: str
    start: str
    file: str
    position: int
    until: int
    changes: int

    def stand_before(self, folder: Path) -> None:
        """Leave in a source's folder what one would have left there that has read up to the stretch."""
        AcknowledgedPosition(folder / "binlog.json").write(self.start)
        GtidNumbers(folder / "gtid_sources.json").begin()


@dataclass(frozen=True, slots=True)
class Load:
    """One load.

    Attributes:
        name: short; also of its table.
        title: what it is.
        columns: of the table.
        row: a row, in terms of ``i`` and ``{base}``.
        share: of the rows asked for.
        updates: whether the rows are there before and are updated.
    """

    name: str
    title: str
    columns: str
    row: str
    share: float
    updates: bool = False

    def rows(self, asked: int) -> int:
        """Return how many rows it has when so many were asked for: whole statements."""
        return max(_BATCH, round(asked * self.share / _BATCH) * _BATCH)


LOADS = {
    load.name: load
    for load in (
        Load(
            "narrow",
            "inserts of 40 bytes in the log, 10,000 a transaction",
            _NARROW,
            _NARROW_ROW,
            # So many that to open a log, which takes a fiftieth of a second, is not what is measured.
            2.5,
        ),
        Load("wide", "inserts of 2.4 KB, 10,000 a transaction", _WIDE, _WIDE_ROW, 0.1),
        Load("updates", "updates, 20 a transaction", _NARROW, _NARROW_ROW, 0.1, updates=True),
    )
}


@contextlib.contextmanager
def running(kind: str) -> Iterator[MysqlProtocolServer]:
    """Give a server whose every commit is synced."""
    settings = {**_SETTINGS, _CAPACITY[kind]: "1G"}
    with SERVERS[kind](settings=settings, durable=True) as server:
        digits = " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10))
        server.execute(
            f"CREATE DATABASE {DATABASE}",
            f"CREATE TABLE {DATABASE}.numbers (i int PRIMARY KEY)",
            f"INSERT INTO {DATABASE}.numbers SELECT 1 + a.d + 10 * b.d + 100 * c.d + 1000 * e.d FROM ({digits}) a, "
            f"({digits}) b, ({digits}) c, ({digits}) e",
        )
        yield server


def begin(server: MysqlProtocolServer, load: Load, rows: int) -> None:
    """Make a load's table, with its rows in it where it updates them."""
    server.execute(f"CREATE TABLE {load.name} ({load.columns})", database=DATABASE)
    if load.updates:
        with _unsynced(server):
            server.execute(*_inserts(load, rows), database=DATABASE)


def record(server: MysqlProtocolServer, load: Load, rows: int) -> Region:
    """Play a load, whose table is there, and return the stretch of the log that holds it."""
    statements = _updates(load, rows) if load.updates else _inserts(load, rows)
    with connect(MysqlSettings(server.url())) as session, _unsynced(server):
        vendor = vendor_of(session)
        # A file of its own: whoever asks by ids is not to wait while the server passes over what lies before.
        server.execute("FLUSH BINARY LOGS")
        start, (file, position) = vendor.beginning(session), vendor.end(session)
        server.execute(*statements[:-1], database=DATABASE)
        before_last = Place.of(*vendor.end(session)).scn
        server.execute(statements[-1], database=DATABASE)
    return Region(load.name, start.render(), file, position, before_last + 1, rows)


def _inserts(load: Load, rows: int) -> list[str]:
    return [
        f"INSERT INTO {load.name} SELECT {load.row.format(base=base)} FROM numbers"
        for base in range(0, rows, _BATCH)
    ]


def _updates(load: Load, rows: int) -> list[str]:
    return [
        f"UPDATE {load.name} SET a = a + 1 WHERE id BETWEEN {first} AND {first + _UPDATED_AT_ONCE - 1}"
        for first in range(1, rows, _UPDATED_AT_ONCE)
    ]


@contextlib.contextmanager
def _unsynced(server: MysqlProtocolServer) -> Iterator[None]:
    """Let commits not wait for the disk while nothing is measured."""
    setting = "SET GLOBAL sync_binlog = {}, GLOBAL innodb_flush_log_at_trx_commit = {}"
    server.execute(setting.format(0, 2))
    yield
    server.execute(setting.format(1, 1))
