"""One database on either kind of server: the same captures, in its own words."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from headrace.model.schema import TableId
from headrace.sources.mysql import MysqlSource
from headrace.sources.postgres import PostgresSource
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from headrace.testing.postgres_server import PostgresServer

__all__ = ["EACH_SERVER", "MYSQL", "Either", "on_either"]

_numbers = itertools.count(1)

EACH_SERVER = [
    pytest.param("postgres", marks=pytest.mark.postgres),
    pytest.param("mariadb", marks=pytest.mark.mariadb),
]
MYSQL = pytest.param("mysql", marks=[pytest.mark.mysql, pytest.mark.long])
"""The third kind, on which tables need a key."""


@dataclass(frozen=True)
class Either:
    """A database with nothing in it.

    Attributes:
        kind: ``postgres``, ``mariadb`` or ``mysql``.
        schema: what stands before its tables' names.
        source: of all of its tables.
        connect: opens one more session, each statement a transaction.
    """

    kind: str
    schema: str
    source: MysqlSource | PostgresSource
    session: Any
    connect: Callable[[], Any]

    def says(self, *statements: str) -> None:
        """Run statements in one session, each in a transaction of its own unless they say otherwise."""
        with self.session.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self, table: str) -> Counter[tuple[Any, ...]]:
        """Return a table's rows at the source."""
        return Counter(self.rows_of(f"SELECT * FROM {table}"))

    def rows_of(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self.session.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def table(self, name: str) -> TableId:
        """Return a table's whole name."""
        return TableId(self.schema, name)

    def one_of(self, table: str, condition: str) -> str:
        """Return what changes just one of the rows that are equal, in place of ``WHERE``."""
        if self.kind != "postgres":
            return f"WHERE {condition} LIMIT 1"
        return f"WHERE ctid = (SELECT ctid FROM {table} WHERE {condition} LIMIT 1)"


@contextmanager
def on_either(kind: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[Either]:
    """Give an empty database on the session's server of a kind."""
    name = f"either_{next(_numbers)}"
    if kind != "postgres":
        other = cast(MysqlProtocolServer, request.getfixturevalue(f"{kind}_server"))
        other.execute(f"CREATE DATABASE {name}")
        source = MysqlSource(other.url(), folder / "place", (f"{name}.*",), name=name)
        with contextlib.closing(other.connect(name)) as session:
            yield Either(kind, name, source, session, lambda: other.connect(name))
        other.execute(f"DROP DATABASE {name}")
        return
    server = cast(PostgresServer, request.getfixturevalue("postgres_server"))
    url = server.create_database(name)
    with psycopg.connect(url, autocommit=True) as session:
        source_of = PostgresSource(url, name=name)
        connect = functools.partial(psycopg.connect, url, autocommit=True)
        yield Either(kind, "public", source_of, session, connect)
    server.drop_database(name)
