"""A real server for the tests of this package, and an object store."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from headrace.testing.postgres_server import PostgresServer
from tests.fixtures_postgres import (
    LOGIN,
    database,
    debian_server,
    older_server,
    postgres_server,
    sql,
)
from tests.fixtures_store import object_server, prefix, proxy

__all__ = [
    "database",
    "debian_server",
    "object_server",
    "older_server",
    "postgres_server",
    "prefix",
    "proxy",
    "sql",
]


@pytest.fixture
def role(postgres_server: PostgresServer, database: str) -> Iterator[str]:
    """Make a role that may connect and nothing else."""
    postgres_server.execute(f"CREATE ROLE plain {LOGIN}")
    yield "plain"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP OWNED BY plain CASCADE")
    postgres_server.execute("DROP OWNED BY plain CASCADE", "DROP ROLE plain")
