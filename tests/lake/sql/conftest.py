"""A real server for the tests of this package."""

from tests.fixtures_binlog import mariadb_server, mysql_server
from tests.fixtures_postgres import database, debian_server, older_server, postgres_server, sql

__all__ = [
    "database",
    "debian_server",
    "mariadb_server",
    "mysql_server",
    "older_server",
    "postgres_server",
    "sql",
]
