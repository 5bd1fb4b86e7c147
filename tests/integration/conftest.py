"""A real server for the tests of this package."""

from tests.fixtures_postgres import database, postgres_server, sql

__all__ = ["database", "postgres_server", "sql"]
