"""A capture of a real server: dumps among changes, restarts, and what the change log amounts to."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.model.schema import TableId
from headrace.observe import failpoints
from headrace.sources.mysql import MysqlSource
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from headrace.watermark.settings import DumpSettings
from tests.fixtures_binlog import (
    MARIADB,
    Sql,
    database,
    mariadb_server,
    mysql_server,
    server,
    source,
    sql,
)
from tests.integration.binlog import Writer, caught_up, go_on, in_source, shopping, writing
from tests.integration.running import running_capture
from tests.requirements import req
from tests.waiting import until

__all__ = ["database", "mariadb_server", "mysql_server", "server", "source", "sql"]


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


@req("H11", "H14")
def test_a_dump_among_changes_leaves_the_sources_table(
    server: MysqlProtocolServer, database: str, sql: Sql, source: MysqlSource, tmp_path: Path
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v int, b text)",
        "INSERT INTO t SELECT seq, 0, 'first' FROM seq_1_to_240",
    )
    table = TableId(database, "t")
    shops = [
        Writer(server, database, seed, functools.partial(shopping, seed=seed), rest_s=0.004)
        for seed in range(4)
    ]
    # Each chunk has changes beside it, however slow the writers are.
    failpoints.arm("window.after_select", lambda: go_on(shops))
    with running_capture(source, tmp_path, DumpSettings(chunk_rows=7)) as running:
        with writing(*shops):
            until(running.dumped, "the dump of all tables")
            failpoints.disarm()
        caught_up(running, source)
        assert running.content(table) == in_source(server, table)
        assert sum(shop.done for shop in shops) > 50


@req("H11", "H14", "D32")
def test_a_capture_goes_on_where_it_was_over_restarts_of_both_sides(
    server: MysqlProtocolServer, database: str, sql: Sql, source: MysqlSource, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v int, b text)", "INSERT INTO t VALUES (1, 1, 'a')")
    table = TableId(database, "t")
    with running_capture(source, tmp_path) as running:
        caught_up(running, source)
    sql("INSERT INTO t VALUES (2, 2, 'b')", "FLUSH BINARY LOGS", "UPDATE t SET v = 5")
    with running_capture(source, tmp_path) as running:
        caught_up(running, source)
        server.kill()
        server.start()
        sql("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (3, 3, 'c')")
        caught_up(running, source)
        assert running.content(table) == in_source(server, table)


@req("T15")
@pytest.mark.parametrize("server", [MARIADB], indirect=True)
def test_a_table_without_a_key_is_copied_row_for_row(
    server: MysqlProtocolServer, database: str, sql: Sql, source: MysqlSource, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (v int, b text)", "INSERT INTO t SELECT seq % 3, 'x' FROM seq_1_to_20")
    table = TableId(database, "t")
    with running_capture(source, tmp_path) as running:
        sql("INSERT INTO t VALUES (1, 'x'), (7, NULL)", "DELETE FROM t WHERE v = 1 LIMIT 3")
        caught_up(running, source)
        assert running.content(table) == in_source(server, table)
