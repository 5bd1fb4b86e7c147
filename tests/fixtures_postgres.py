"""Fixtures with a real PostgreSQL: servers for the session, an empty ``database`` for each test.

``HEADRACE_POSTGRES`` names the major version behind ``database``; ``make test-matrix`` goes through them.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from headrace.testing.postgres import DebianPostgres, EmbeddedPostgres
from headrace.testing.postgres_server import PostgresServer

__all__ = [
    "LOGIN",
    "as_role",
    "database",
    "debian_server",
    "emitters",
    "name_of",
    "older_server",
    "postgres_server",
    "sql",
]

LOGIN = f"LOGIN PASSWORD '{DebianPostgres.PASSWORD}'"
"""What a role needs to be one for `as_role` on every server."""

_numbers = itertools.count(1)

Sql = Callable[..., None]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Run the version that was asked for: 15 is Debian's, the others come by pip, the newest by default."""
    version = int(os.environ.get("HEADRACE_POSTGRES", 0))
    with DebianPostgres() if version == 15 else EmbeddedPostgres(version=version or None) as server:
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
def database(postgres_server: PostgresServer) -> Iterator[str]:
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


def name_of(url: str) -> str:
    """Return the name of the database in a URL."""
    return urlsplit(url).path.removeprefix("/")


def as_role(url: str, role: str) -> str:
    """Return the same URL for another role, made with `LOGIN`."""
    scheme, _, rest = url.partition("://postgres")
    return f"{scheme}://{role}{rest}"


def emitters(url: str) -> list[str]:
    """Return the functions that write logical messages, by signature; it differs between versions."""
    query = "SELECT oid::regprocedure::text FROM pg_proc WHERE proname = 'pg_logical_emit_message'"
    with psycopg.connect(url) as connection:
        return [name for (name,) in connection.execute(query)]
