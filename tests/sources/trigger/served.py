"""A database that triggers are read from, whichever server it is on: what tests say to each in its own words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pymysql

from headrace.sources.mysql.connection import connect as connect_mysql
from headrace.sources.postgres.connection import connect as connect_postgres
from headrace.sources.trigger.mysql import MysqlTriggerSource
from headrace.sources.trigger.mysql.clock import struck
from headrace.sources.trigger.mysql.purge import purge as purge_mysql
from headrace.sources.trigger.postgres import PostgresTriggerSource
from headrace.sources.trigger.postgres.clock import Striker
from headrace.sources.trigger.postgres.purge import purge as purge_postgres
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from tests.binlog_servers import expressed
from tests.sources.trigger.support import TriggerLog

__all__ = ["MysqlServed", "PostgresServed", "Served", "Session"]


class Session(Protocol):
    """A connection whose transactions the test begins and ends."""

    def execute(self, sql: str) -> list[tuple[Any, ...]]: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...


class Served(Protocol):
    """A database on a server."""

    table: str
    """Qualified name of the table ``t``."""
    purges_beside_open: bool
    """Whether changes that were read are let go of while a transaction is open that began before them."""

    def source(self, **arguments: Any) -> Any: ...

    def session(self) -> Session: ...

    def sql(self, *statements: str) -> None: ...

    def query(self, sql: str) -> list[tuple[Any, ...]]: ...

    def upsert(self, key: int, value: int) -> str: ...

    def younger(self, last: Any) -> str: ...

    def strike(self, source: Any) -> None: ...

    def purge(self, source: Any) -> None: ...

    def age(self, hours: int) -> tuple[str, str]: ...

    def held(self) -> tuple[int, int]: ...

    def cut(self) -> None: ...


@contextmanager
def opened(served: Served, folder: Path, **arguments: Any) -> Iterator[TriggerLog]:
    """Prepare a source and open its log; it is closed afterwards."""
    source = served.source(**arguments)
    source.prepare()
    log = TriggerLog(source, folder)
    try:
        yield log
    finally:
        log.close()


@contextmanager
def session(served: Served) -> Iterator[Session]:
    """Give a connection whose transactions the test begins and ends."""
    with contextlib.closing(served.session()) as found:
        yield found


@dataclass
class _PostgresSession:
    connection: psycopg.Connection[Any]

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def close(self) -> None:
        self.connection.close()


class PostgresServed:
    """See `Served`."""

    table = "public.t"
    purges_beside_open = False

    def __init__(self, url: str) -> None:
        self.url = url

    def source(self, **arguments: Any) -> PostgresTriggerSource:
        return PostgresTriggerSource(self.url, **arguments)

    def session(self) -> Session:
        return _PostgresSession(psycopg.connect(self.url))

    def sql(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url) as connection:
            return connection.execute(sql.encode()).fetchall()

    def upsert(self, key: int, value: int) -> str:
        return f"INSERT INTO t VALUES ({key}, {value}) ON CONFLICT (id) DO UPDATE SET v = {value}"

    def younger(self, last: Any) -> str:
        return f"SELECT id, v, changed::text FROM t WHERE changed > '{last or '-infinity'}' ORDER BY changed"

    def strike(self, source: Any) -> None:
        with connect_postgres(source.settings.database) as own:
            Striker().strike(own)

    def purge(self, source: Any) -> None:
        with connect_postgres(source.settings.database) as own:
            while purge_postgres(own, source.name):
                pass

    def age(self, hours: int) -> tuple[str, str]:
        return (
            f"UPDATE headrace.txlog_clock SET at = at - interval '{hours} hours'",
            f"UPDATE headrace.txlog_readers SET seen_at = seen_at - interval '{hours} hours'",
        )

    def held(self) -> tuple[int, int]:
        ((changes, ticks),) = self.query(
            "SELECT (SELECT count(*) FROM headrace.txlog_changes), (SELECT count(*) FROM headrace.txlog_clock)"
        )
        return changes, ticks

    def cut(self) -> None:
        self.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name LIKE 'headrace%'"
        )


@dataclass
class _MysqlSession:
    connection: pymysql.Connection[Any]

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def close(self) -> None:
        self.connection.close()


class MysqlServed:
    """See `Served`."""

    purges_beside_open = True

    def __init__(self, server: MysqlProtocolServer, database: str) -> None:
        self.server = server
        self.database = database
        self.table = f"{database}.t"

    def source(self, **arguments: Any) -> MysqlTriggerSource:
        given = {"tables": (f"{self.database}.*",), **arguments}
        return MysqlTriggerSource(self.server.url(), **given)

    def session(self) -> Session:
        connection = self.server.connect(self.database)
        with connection.cursor() as cursor:
            # One thread is all of its writers: none may wait for another's gaps.
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        connection.autocommit(False)
        return _MysqlSession(connection)

    def sql(self, *statements: str) -> None:
        self.server.execute(
            *(expressed(self.server, one) for one in statements), database=self.database
        )

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return list(self.server.query(sql, self.database))

    def upsert(self, key: int, value: int) -> str:
        return f"INSERT INTO t VALUES ({key}, {value}) ON DUPLICATE KEY UPDATE v = {value}"

    def younger(self, last: Any) -> str:
        return f"SELECT id, v, changed FROM t WHERE changed > '{last or '1970-01-02'}' ORDER BY changed"

    def strike(self, source: Any) -> None:
        with connect_mysql(source.settings.database) as own:
            struck(source.settings, own)

    def purge(self, source: Any) -> None:
        with connect_mysql(source.settings.database) as own:
            while purge_mysql(own, source.name):
                pass

    def age(self, hours: int) -> tuple[str, str]:
        return (
            f"UPDATE headrace.txlog_clock SET at_us = at_us - {hours * 3_600_000_000}",
            f"UPDATE headrace.txlog_readers SET seen_at = seen_at - INTERVAL {hours} HOUR",
        )

    def held(self) -> tuple[int, int]:
        ((changes, ticks),) = self.query(
            "SELECT (SELECT COUNT(*) FROM headrace.txlog_changes), (SELECT COUNT(*) FROM headrace.txlog_clock)"
        )
        return changes, ticks

    def cut(self) -> None:
        for number, user in self.query("SELECT id, user FROM information_schema.processlist"):
            if user == "headrace":
                with contextlib.suppress(pymysql.MySQLError):
                    self.server.execute(f"KILL {number}")
