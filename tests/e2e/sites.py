"""Databases whose tables somebody else dumps, each in its own words, while everybody writes."""

from __future__ import annotations

import contextlib
import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from psycopg.pq import ExecStatus, PGconn

from tests.binlog_servers import expressed_for_mysql
from tests.e2e.databases import asked, connected, said

__all__ = ["Dump", "Site", "site_of"]

Dump = Callable[[str, Path], Path]
"""Writes a table of a snapshot into a folder of Parquet files, and returns it."""

COUNTS = pa.schema([("n", pa.int32()), ("what", pa.string())])
ORDERS = pa.schema(
    [
        ("id", pa.int32()),
        ("note", pa.string()),
        ("amount", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("doc", pa.string()),
    ]
)


class Site(Protocol):
    """A shop: two tables that are written to all the time, and three others."""

    def fill(self) -> None:
        """Create the tables and their first rows."""

    def position(self) -> str:
        """Return where the log ends now."""

    def snapshot(self) -> contextlib.AbstractContextManager[tuple[str, Dump]]:
        """Give a position of the log, and what dumps tables as they are there."""

    def writing(self, begin: int = 0) -> contextlib.AbstractContextManager[None]:
        """Write to the two tables until the block ends; each number once, from ``begin`` on."""

    def says(self, statement: str) -> None:
        """Run a statement."""


def site_of(kind: str, url: str) -> Site:
    """Return the shop on a kind of server."""
    kinds: dict[str, Callable[[str], Site]] = {
        "postgres": _Postgres,
        "mariadb": _Mariadb,
        "mysql": _Mysql,
    }
    return kinds[kind](url)


@contextmanager
def _writing(url: str, writes: tuple[str, ...], begin: int) -> Iterator[None]:
    """Run transactions of one to three statements, one after the other."""
    stop, failed = threading.Event(), list[BaseException]()

    def work() -> None:
        rng, n = random.Random(begin), begin
        try:
            with contextlib.closing(connected(url)) as connection:
                connection.autocommit = False
                cursor = connection.cursor()
                while not stop.wait(0.01):
                    for statement in rng.sample(writes, rng.randrange(1, 4)):
                        n += 1
                        cursor.execute(statement.format(n=n))
                    connection.commit()
        except Exception as error:  # noqa: BLE001 - shown by the test's own thread
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not failed, failed


def _kept(rows: list[tuple[Any, ...]], types: pa.Schema, folder: Path) -> Path:
    arrays = [pa.array([r[at] for r in rows], f.type) for at, f in enumerate(types)]
    folder.mkdir()
    pq.write_table(pa.table(arrays, schema=types), folder / "all.parquet")
    return folder


ON_POSTGRES = (
    "create schema shop",
    """create table shop.orders (
       id int primary key, note text, amount numeric(10,2), at timestamptz not null, doc jsonb)""",
    "alter table shop.orders alter column note set storage external",
    "create table shop.clicks (n int, what text)",
    "alter table shop.clicks replica identity full",
    "create table shop.late (n int, what text)",
    "alter table shop.late replica identity full",
    "create table shop.early (n int, what text)",
    "alter table shop.early replica identity full",
    "create table shop.other (id int primary key)",
    """insert into shop.orders
       select n, repeat(md5(n::text), 200), n, now(), '{"n": 1}' from generate_series(1, 500) n""",
    "insert into shop.clicks select n % 7, 'x' from generate_series(1, 200) n",
    "insert into shop.late values (1, 'x')",
    "insert into shop.early values (1, 'x')",
    "insert into shop.other select generate_series(1, 50)",
)
WRITES = (
    "update shop.orders set amount = amount + 1 where id % 40 = {n} % 40",
    "update shop.orders set id = 1000000 + {n} where id = {n}",
    "update shop.orders set note = repeat(md5('{n}'), 200) where id = {n} + 7",
    "delete from shop.orders where id = {n} + 100",
    "insert into shop.orders values (2000000 + {n}, null, 0.5, now(), '[]')",
    "insert into shop.clicks values ({n} % 7, 'x'), ({n} % 7, 'x')",
)


class _Postgres:
    def __init__(self, url: str) -> None:
        self._url = url

    def fill(self) -> None:
        said(self._url, *ON_POSTGRES)

    def says(self, statement: str) -> None:
        said(self._url, statement)

    def position(self) -> str:
        ((place,),) = asked(self._url, "select pg_current_wal_insert_lsn()::text")
        return str(place)

    def writing(self, begin: int = 0) -> contextlib.AbstractContextManager[None]:
        one = "where ctid = (select ctid from shop.clicks"
        writes = (
            *WRITES,
            f"delete from shop.clicks {one} where n = {{n}} % 7 limit 1)",
            f"update shop.clicks set what = 'y' {one} limit 1)",
        )
        return _writing(self._url, writes, begin)

    @contextmanager
    def snapshot(self) -> Iterator[tuple[str, Dump]]:
        url = f"{self._url}{'&' if '?' in self._url else '?'}replication=database"
        connection = PGconn.connect(url.encode())
        try:
            made = connection.exec_(
                b"CREATE_REPLICATION_SLOT elsewhere TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT"
            )
            assert made.status == ExecStatus.TUPLES_OK, connection.error_message
            position, name = made.get_value(0, 1), made.get_value(0, 2)
            assert position is not None
            assert name is not None
            snapshot = name.decode()

            def dumped(table: str, folder: Path) -> Path:
                types = ORDERS if table == "orders" else COUNTS
                columns = ", ".join("doc::text" if c == "doc" else c for c in types.names)
                with psycopg.connect(self._url) as reader:
                    reader.execute("set transaction isolation level repeatable read")
                    reader.execute(f"set transaction snapshot '{snapshot}'".encode())
                    rows = reader.execute(f"select {columns} from shop.{table}".encode()).fetchall()
                return _kept(rows, types, folder)

            yield position.decode(), dumped
        finally:
            connection.finish()


ON_MARIADB = (
    "create schema shop",
    """create table shop.orders (
       id int primary key, note text, amount decimal(10,2), at timestamp(6) not null default now(6), doc json)""",
    "create table shop.clicks (n int, what varchar(9))",
    "create table shop.late (n int, what varchar(9))",
    "create table shop.early (n int, what varchar(9))",
    "create table shop.other (id int primary key)",
    """insert into shop.orders
       select seq, repeat(md5(seq), 200), seq, now(6), '{"n": 1}' from shop.seq_1_to_500""",
    "insert into shop.clicks select seq % 7, 'x' from shop.seq_1_to_200",
    "insert into shop.late values (1, 'x')",
    "insert into shop.early values (1, 'x')",
    "insert into shop.other select seq from shop.seq_1_to_50",
)


class _Mariadb:
    def __init__(self, url: str) -> None:
        self._url = url

    def fill(self) -> None:
        said(self._url, *ON_MARIADB)

    def says(self, statement: str) -> None:
        said(self._url, statement)

    def position(self) -> str:
        ((file, place, *_),) = asked(self._url, "show master status")
        return f"{file}:{place}"

    def writing(self, begin: int = 0) -> contextlib.AbstractContextManager[None]:
        writes = (
            # Large values that do not change are left out of the log.
            *(f"set statement binlog_row_image = noblob for {write}" for write in WRITES),
            "delete from shop.clicks where n = {n} % 7 limit 1",
            "update shop.clicks set what = 'y' limit 1",
        )
        return _writing(self._url, writes, begin)

    @contextmanager
    def snapshot(self) -> Iterator[tuple[str, Dump]]:
        with contextlib.closing(connected(self._url)) as connection, connection.cursor() as cursor:
            cursor.execute("set session time_zone = '+00:00'")
            cursor.execute("start transaction with consistent snapshot")
            cursor.execute("show status like 'binlog_snapshot_%'")
            place = {name.lower(): value for name, value in cursor.fetchall()}

            def dumped(table: str, folder: Path) -> Path:
                types = ORDERS if table == "orders" else COUNTS
                cursor.execute(f"select {', '.join(types.names)} from shop.{table}")
                return _kept(list(cursor.fetchall()), types, folder)

            yield (
                f"{place['binlog_snapshot_file']}:{place['binlog_snapshot_position']}",
                dumped,
            )


def _unhashed(statement: str) -> str:
    """Return a statement without the function that MySQL does not have any more."""
    return re.sub(r"md5\(([^)]*)\)", r"hex(crc32(\1))", statement)


# Tables have keys here, which those who write do not see.
ON_MYSQL = tuple(
    expressed_for_mysql(_unhashed(statement).replace("shop.seq_", "seq_")).replace(
        "(n int, what varchar(9))",
        "(n int, what varchar(9), id int auto_increment primary key invisible)",
    )
    for statement in ON_MARIADB
)
KEYED_COUNTS = COUNTS.append(pa.field("id", pa.int32()))


class _Mysql(_Mariadb):
    def fill(self) -> None:
        said(self._url, *ON_MYSQL)

    def position(self) -> str:
        ((file, place, *_),) = asked(self._url, "show binary log status")
        return f"{file}:{place}"

    def writing(self, begin: int = 0) -> contextlib.AbstractContextManager[None]:
        writes = (
            *map(_unhashed, WRITES[:-1]),
            "insert into shop.clicks (n, what) values ({n} % 7, 'x'), ({n} % 7, 'x')",
            "delete from shop.clicks where n = {n} % 7 order by id limit 1",
            "update shop.clicks set what = 'y' order by id limit 1",
        )
        return _writing(self._url, writes, begin)

    @contextmanager
    def snapshot(self) -> Iterator[tuple[str, Dump]]:
        # As mysqldump has it: nobody may commit while place and snapshot are taken.
        with (
            contextlib.closing(connected(self._url)) as locking,
            contextlib.closing(connected(self._url)) as connection,
            connection.cursor() as cursor,
        ):
            with locking.cursor() as lock:
                lock.execute("flush tables with read lock")
                cursor.execute("set session time_zone = '+00:00'")
                cursor.execute("start transaction with consistent snapshot")
                place = self.position()
                lock.execute("unlock tables")

            def dumped(table: str, folder: Path) -> Path:
                types = ORDERS if table == "orders" else KEYED_COUNTS
                cursor.execute(f"select {', '.join(types.names)} from shop.{table}")
                return _kept(list(cursor.fetchall()), types, folder)

            yield place, dumped
