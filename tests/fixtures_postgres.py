"""Fixtures with a real PostgreSQL: servers for the session, an empty ``database`` for each test."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import psycopg
import pytest

from headrace.testing.postgres import DebianPostgres, EmbeddedPostgres

__all__ = ["database", "debian_server", "older_server", "postgres_server", "sql"]

_numbers = itertools.count(1)

Sql = Callable[..., None]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[EmbeddedPostgres]:
    """Run the newest embedded PostgreSQL."""
    with EmbeddedPostgres() as server:
        yield server


@pytest.fixture(scope="session")
def older_server() -> Iterator[EmbeddedPostgres]:
    """Run PostgreSQL 16, which cannot flush a logical message by itself."""
    with EmbeddedPostgres(version=16) as server:
        yield server


@pytest.fixture(scope="session")
def debian_server() -> Iterator[DebianPostgres]:
    """Run Debian's PostgreSQL 15 over TCP with SCRAM and TLS."""
    with DebianPostgres() as server:
        yield server


@pytest.fixture
def database(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """Give the URL of an empty database; its slots are gone afterwards."""
    name = f"test_{next(_numbers)}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


@pytest.fixture
def sql(database: str) -> Iterator[Sql]:
    """Run statements in the test's database, each in a transaction of its own."""
    with psycopg.connect(database, autocommit=True) as connection:

        def run(*statements: str) -> None:
            for statement in statements:
                connection.execute(statement.encode())

        yield run
