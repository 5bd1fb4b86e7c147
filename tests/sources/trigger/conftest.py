"""A real server for the tests of this package."""

from __future__ import annotations

from tests.fixtures_postgres import database, debian_server, older_server, postgres_server, sql

__all__ = ["database", "debian_server", "older_server", "postgres_server", "sql"]
