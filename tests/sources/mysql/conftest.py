"""A real server for the tests of this package."""

from __future__ import annotations

from tests.fixtures_binlog import database, mariadb_server, mysql_server, server, sql

__all__ = ["database", "mariadb_server", "mysql_server", "server", "sql"]
