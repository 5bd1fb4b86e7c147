"""Real servers for the tests of this package: what holds on each of them runs on each of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from headrace.testing.mariadb_server import MariadbServer
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from tests.fixtures_binlog import MARIADB, mariadb_server, mysql_server
from tests.fixtures_postgres import database, debian_server, older_server, postgres_server, sql
from tests.sources.trigger.served import MysqlServed, PostgresServed, Served

__all__ = [
    "database",
    "debian_server",
    "mariadb_server",
    "mysql_server",
    "older_server",
    "postgres_server",
    "sql",
]

_numbers = itertools.count(1)

# It differs from MariaDB in few of our statements.
MYSQL = pytest.param("mysql_server", marks=[pytest.mark.mysql, pytest.mark.long], id="mysql")


@pytest.fixture(params=[MARIADB, MYSQL])
def on_mysql(request: pytest.FixtureRequest) -> Iterator[MysqlServed]:
    """Give an empty database on MariaDB and on MySQL in turn."""
    server: MysqlProtocolServer = request.getfixturevalue(request.param)
    name = f"triggers_{next(_numbers)}"
    server.execute(f"CREATE DATABASE {name}")
    yield MysqlServed(server, name)
    server.execute(f"DROP DATABASE {name}", "DROP DATABASE IF EXISTS headrace")


@pytest.fixture
def mariadb_without_log() -> Iterator[MysqlServed]:
    """Give an empty database on a MariaDB that keeps no binary log."""
    with MariadbServer(settings={"skip_log_bin": "1"}) as server:
        server.execute("CREATE DATABASE triggers_unlogged")
        yield MysqlServed(server, "triggers_unlogged")


@pytest.fixture(
    params=[
        pytest.param("database", marks=pytest.mark.postgres, id="postgres"),
        MARIADB,
        MYSQL,
    ]
)
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    """Give an empty database on each server in turn."""
    found = request.getfixturevalue(request.param)
    if isinstance(found, str):
        yield PostgresServed(found)
        return
    name = f"triggers_{next(_numbers)}"
    found.execute(f"CREATE DATABASE {name}")
    yield MysqlServed(found, name)
    found.execute(f"DROP DATABASE {name}", "DROP DATABASE IF EXISTS headrace")
