"""A real server for the tests of this package."""

from __future__ import annotations

from tests.fixtures_binlog import database, server, sql

__all__ = ["database", "server", "sql"]
