"""A real server for the tests of this package."""

from __future__ import annotations

from tests.fixtures_binlog import database, mariadb_server, mysql_server, server, sql
from tests.sources.mysql.halves import halves

__all__ = ["database", "halves", "mariadb_server", "mysql_server", "server", "sql"]
