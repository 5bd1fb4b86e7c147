"""A real server for the tests of this package, and a reader of its chunks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.chunks import PostgresChunkReader
from tests.fixtures_postgres import (
    database,
    debian_server,
    older_server,
    postgres_server,
    sql,
)

__all__ = ["database", "debian_server", "older_server", "postgres_server", "reader", "sql"]


@pytest.fixture
def reader(database: str) -> Iterator[PostgresChunkReader]:
    chunks = PostgresSource(database).chunks()
    yield chunks
    chunks.close()
