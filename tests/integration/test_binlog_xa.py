"""Distributed transactions (XA) in a real server's log, under their own names, prepared by one session or another."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import SourceError
from headrace.model.schema import TableId
from headrace.sources.mysql import MysqlSource
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from tests.faults.faulty import at_work, failure_of
from tests.fixtures_binlog import Sql, database, mariadb_server, mysql_server, server, source, sql
from tests.integration.binlog import caught_up, in_source
from tests.integration.lives import begun_again
from tests.requirements import req
from tests.waiting import until

__all__ = ["database", "mariadb_server", "mysql_server", "server", "source", "sql"]

TABLE = ("CREATE TABLE t (id int PRIMARY KEY, v int, b text)", "INSERT INTO t VALUES (1, 1, 'a')")


def xa(name: str, *statements: str) -> tuple[str, ...]:
    """Return what does statements in a distributed transaction, up to its end."""
    return f"XA START '{name}'", *statements, f"XA END '{name}'"


@req("P17")
def test_distributed_transactions_pass_where_they_are_ordinary(
    server: MysqlProtocolServer, database: str, sql: Sql, source: MysqlSource, tmp_path: Path
) -> None:
    sql(*TABLE)
    table = TableId(database, "t")
    insert = xa(database, "INSERT INTO t VALUES (900, 1, 'xa')")
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        # Neither is in the log as a distributed one.
        sql(*insert, f"XA ROLLBACK '{database}'")
        sql(*insert, f"XA COMMIT '{database}' ONE PHASE")
        caught_up(running, source)
        assert running.content(table) == in_source(server, table)
        assert (900, 1, "xa") in running.content(table)


@req("P17")
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_those_of_tables_that_are_not_captured_pass_over_a_restart(
    end: str,
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    source: MysqlSource,
    tmp_path: Path,
) -> None:
    sql(*TABLE)
    server.execute(f"CREATE DATABASE {database}_x")
    sql(f"CREATE TABLE {database}_x.o (id int PRIMARY KEY)")
    table = TableId(database, "t")
    prepare = (*xa(database, f"INSERT INTO {database}_x.o VALUES (1)"), f"XA PREPARE '{database}'")
    try:
        with at_work(source, tmp_path) as running:
            until(running.dumped, "the first copy")
            # Whoever prepared it goes away: somebody else ends it.
            sql(*prepare)
            sql("UPDATE t SET v = 2 WHERE id = 1")
            caught_up(running, source)
        with at_work(source, tmp_path) as running:
            sql(f"XA {end} '{database}'", "INSERT INTO t VALUES (2, 2, 'b')")
            caught_up(running, source)
            assert running.error is None
            assert running.content(table) == in_source(server, table)
    finally:
        server.execute(f"DROP DATABASE {database}_x")


@pytest.mark.parametrize(
    ("prepared", "end"),
    [
        pytest.param("before", "COMMIT", marks=pytest.mark.long),
        ("meanwhile", "ROLLBACK"),
    ],
)
def test_those_of_captured_tables_stop_a_capture_before_anything_is_wrong(
    prepared: str,
    end: str,
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    source: MysqlSource,
    tmp_path: Path,
) -> None:
    sql(*TABLE)
    table = TableId(database, "t")
    prepare = (
        *xa(database, "INSERT INTO t VALUES (900, 1, 'xa')"),
        f"XA PREPARE '{database}'",
    )
    if prepared == "before":
        sql(*prepare)
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        if prepared == "meanwhile":
            sql(*prepare)
            error = failure_of(running)
            sql(f"XA {end} '{database}'")
        else:
            # Its rows are in the log before the place where we began.
            sql(f"XA {end} '{database}'")
            error = failure_of(running)
    assert isinstance(error, SourceError)
    assert "is a distributed one (XA" in error.message
    assert "headrace resync" in error.next_step
    begun_again(source, tmp_path)
    with at_work(source, tmp_path) as running:
        caught_up(running, source)
        assert running.content(table) == in_source(server, table)
