"""Fixtures with a real server that keeps a binary log: each test runs once on MariaDB and once on MySQL.

One server of each for the session, an empty ``database`` for each test.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.sources.mysql import MysqlSource
from headrace.testing.mariadb_server import MariadbServer
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from headrace.testing.mysql_server import MysqlServer
from tests.binlog_servers import expressed

__all__ = [
    "MARIADB",
    "MYSQL",
    "database",
    "mariadb_server",
    "mysql_server",
    "server",
    "source",
    "sql",
]

_numbers = itertools.count(1)

Sql = Callable[..., None]

MARIADB = pytest.param("mariadb_server", marks=pytest.mark.mariadb, id="mariadb")
MYSQL = pytest.param("mysql_server", marks=pytest.mark.mysql, id="mysql")


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MysqlProtocolServer]:
    """Run Debian's MariaDB."""
    with MariadbServer() as running:
        yield running


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[MysqlProtocolServer]:
    """Run MySQL."""
    with MysqlServer() as running:
        yield running


@pytest.fixture(params=[MARIADB, MYSQL])
def server(request: pytest.FixtureRequest) -> MysqlProtocolServer:
    """Give each of both servers in turn."""
    found: MysqlProtocolServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def database(server: MysqlProtocolServer) -> Iterator[str]:
    """Give the name of an empty database."""
    name = f"test_{next(_numbers)}"
    server.execute(f"CREATE DATABASE {name}")
    yield name
    server.execute(f"DROP DATABASE IF EXISTS {name}")


@pytest.fixture
def sql(server: MysqlProtocolServer, database: str) -> Sql:
    """Run statements in the test's database, each in a transaction of its own, all in one session."""

    def run(*statements: str) -> None:
        server.execute(*(expressed(server, one) for one in statements), database=database)

    return run


@pytest.fixture
def source(server: MysqlProtocolServer, database: str, tmp_path: Path) -> MysqlSource:
    """Give a source of the test's database."""
    return MysqlSource(server.url(), tmp_path / "source", tables=(f"{database}.*",), name=database)
