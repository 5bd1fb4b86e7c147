"""Fixtures with a real MariaDB: one server for the session, an empty ``database`` for each test."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.sources.mysql import MysqlSource
from headrace.testing.mariadb_server import MariadbServer

__all__ = ["database", "mariadb_server", "source", "sql"]

_numbers = itertools.count(1)

Sql = Callable[..., None]


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariadbServer]:
    """Run Debian's MariaDB."""
    with MariadbServer() as server:
        yield server


@pytest.fixture
def database(mariadb_server: MariadbServer) -> Iterator[str]:
    """Give the name of an empty database."""
    name = f"test_{next(_numbers)}"
    mariadb_server.execute(f"CREATE DATABASE {name}")
    yield name
    mariadb_server.execute(f"DROP DATABASE IF EXISTS {name}")


@pytest.fixture
def sql(mariadb_server: MariadbServer, database: str) -> Sql:
    """Run statements in the test's database, each in a transaction of its own, all in one session."""

    def run(*statements: str) -> None:
        mariadb_server.execute(*statements, database=database)

    return run


@pytest.fixture
def source(mariadb_server: MariadbServer, database: str, tmp_path: Path) -> MysqlSource:
    """Give a source of the test's database."""
    return MysqlSource(
        mariadb_server.url(), tmp_path / "source", tables=(f"{database}.*",), name=database
    )
