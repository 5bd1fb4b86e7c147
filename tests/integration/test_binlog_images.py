"""Rows of a real server whose log leaves out what it can: nothing but images of the least form, during dumps."""

from __future__ import annotations

import functools
import random
from pathlib import Path

import pytest
from pymysql.cursors import Cursor

from headrace.changelog import ChangeLogReader
from headrace.model.schema import TableId
from headrace.sources.mysql import MysqlSource
from headrace.state.records import Scope
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from headrace.watermark.settings import DumpSettings
from tests.fixtures_binlog import Sql, database, mariadb_server, mysql_server, server, source, sql
from tests.integration.binlog import Writer, caught_up, in_source, writing
from tests.integration.running import running_capture
from tests.requirements import req
from tests.waiting import until

__all__ = ["database", "mariadb_server", "mysql_server", "server", "source", "sql"]

KEYS, WRITERS = 60, 4


def least(cursor: Cursor, rng: random.Random, done: int, seed: int) -> None:
    """Change a row, one column or its key; each writer has keys of its own."""
    if not done:
        cursor.execute("SET SESSION binlog_row_image = MINIMAL")
    one, other = (WRITERS * rng.randint(1, KEYS) + seed for _ in range(2))
    cursor.execute(
        rng.choice(
            (
                f"UPDATE t SET v = {done} WHERE id = {one}",
                f"UPDATE t SET b = REPEAT('b{done}', 40) WHERE id = {one}",
                f"UPDATE IGNORE t SET id = {other} WHERE id = {one}",
                f"UPDATE IGNORE t SET id = {other}, v = {done} WHERE id = {one}",
                f"DELETE FROM t WHERE id = {one}",
                f"INSERT IGNORE INTO t VALUES ({one}, {done}, 'new')",
            )
        )
    )


@req("P17", "T11", "P44")
@pytest.mark.parametrize("dumps", [2, pytest.param(25, marks=pytest.mark.long)])
def test_dumps_among_nothing_but_minimal_images_leave_the_sources_rows(
    dumps: int,
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    source: MysqlSource,
    tmp_path: Path,
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v int, b text)",
        f"INSERT INTO t SELECT seq, 0, REPEAT('first', 100) FROM seq_1_to_{WRITERS * (KEYS + 1)}",
    )
    table = TableId(database, "t")
    writers = [
        Writer(server, database, seed, functools.partial(least, seed=seed), rest_s=0.002)
        for seed in range(WRITERS)
    ]
    slowly = DumpSettings(chunk_rows=7, request_interval_s=0.02)
    with running_capture(source, tmp_path, slowly) as running:
        with writing(*writers):
            until(running.dumped, "the first copy")
            for _ in range(dumps - 1):
                running.state.submit(Scope.TABLE, table)
                until(running.dumped, "a dump")
        caught_up(running, source)
        assert running.content(table) == in_source(server, table)
    holes = sum(
        len(body.batch) - body.batch.column("_missing").null_count
        for block in ChangeLogReader(tmp_path / "changelog").blocks(0)
        for body in block.bodies
    )
    assert holes > 100, "most rows of the log lack something"
