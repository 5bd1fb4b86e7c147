"""A schema with a point in its name: its tables have names of other tables, and are refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import IncompatibleSchemaChange, PreflightFailed
from headrace.model.schema import TableId
from headrace.sources.mysql import MysqlSource
from headrace.sources.postgres import PostgresSource
from headrace.testing.mariadb_server import MariadbServer
from tests.faults.faulty import at_work, failure_of, named
from tests.fixtures_binlog import mariadb_server
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

__all__ = ["mariadb_server"]

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

PLAIN = TableId("a", "b.c")


@pytest.fixture
def plain(sql: Sql) -> None:
    """Make a table whose own name holds a point, which makes no other name of it."""
    sql(
        "CREATE SCHEMA a",
        'CREATE TABLE a."b.c" (id int PRIMARY KEY)',
        'INSERT INTO a."b.c" VALUES (1)',
    )


@req("C21")
@pytest.mark.usefixtures("plain")
def test_a_schema_with_a_point_is_refused_until_it_is_excluded(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql('CREATE SCHEMA "a.b"', 'CREATE TABLE "a.b".c (id int PRIMARY KEY)')
    (found,) = PostgresSource(database, ["a*.*"]).preflight()
    assert (found.name, found.table) == ("schema-name-dotted", "a.b.c")
    assert "table b.c of a schema a" in found.description
    with pytest.raises(PreflightFailed, match=r"schema a\.b holds a point"):
        PostgresSource(database, ["a*.*"]).prepare()
    with at_work(PostgresSource(database, ["a*.*"], ["a?b.*"]), tmp_path) as running:
        until(running.dumped, "the first copy")
        sql('INSERT INTO a."b.c" VALUES (2)', 'INSERT INTO "a.b".c VALUES (3)')
        until(lambda: running.content(PLAIN) == {(1,): 1, (2,): 1}, "the other table alone")
    assert running.error is None


@req("C21")
@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("adopted", [False, True])
def test_one_that_comes_while_others_are_captured_stops_the_capture_by_name(
    adopted: bool, database: str, sql: Sql, tmp_path: Path
) -> None:
    """An adopted publication of all tables tells its rows before any look does."""
    if adopted:
        sql("CREATE PUBLICATION theirs FOR ALL TABLES")
    theirs = "theirs" if adopted else None
    source = PostgresSource(database, ["a*.*"], publication=theirs)
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        sql(
            'CREATE SCHEMA "a.b"',
            'CREATE TABLE "a.b".c (id int PRIMARY KEY)',
            'INSERT INTO "a.b".c VALUES (7)',
        )
        error = named(failure_of(running), IncompatibleSchemaChange, "schema a.b")
        assert "source.exclude: ['a?b.*']" in error.next_step
        assert running.content(PLAIN) == {(1,): 1}
    source = PostgresSource(database, ["a*.*"], ["a?b.*"], publication=theirs)
    with at_work(source, tmp_path) as running:
        sql('INSERT INTO a."b.c" VALUES (2)')
        until(lambda: running.content(PLAIN) == {(1,): 1, (2,): 1}, "the table as it is")
    assert running.error is None


@req("C21")
@pytest.mark.mariadb
def test_a_database_with_a_point_is_refused_on_mariadb(
    mariadb_server: MariadbServer, tmp_path: Path
) -> None:
    mariadb_server.execute("CREATE DATABASE `a.b`", "CREATE TABLE `a.b`.c (id int PRIMARY KEY)")
    try:
        source = MysqlSource(mariadb_server.url(), tmp_path / "place", ("a?b.*",))
        assert "schema-name-dotted" in [found.name for found in source.preflight()]
    finally:
        mariadb_server.execute("DROP DATABASE `a.b`")
