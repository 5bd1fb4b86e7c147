"""A capture by triggers of a real PostgreSQL: dumps among changes, restarts, and what the change log amounts to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.model.schema import TableId
from headrace.sources.trigger import TriggerSource
from headrace.watermark.settings import DumpSettings
from tests.fixtures_postgres import Sql
from tests.integration.running import Running, running_capture
from tests.requirements import req
from tests.waiting import until

pytestmark = pytest.mark.postgres

T = TableId("public", "t")


def in_source(url: str, table: TableId = T) -> Counter[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return Counter(connection.execute(f"SELECT * FROM {table}").fetchall())


def caught_up(running: Running, source: TriggerSource) -> None:
    end = source.end_scn()
    until(lambda: running.dumped() and running.reader.tail().covered_scn >= end, "all of the log")


@req("D117")
def test_a_dump_and_changes(database: str, sql: Sql, tmp_path: Path) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v int, b text)",
        "INSERT INTO t SELECT g, 0, 'first' FROM generate_series(1, 50) g",
    )
    source = TriggerSource(database, name="shop")
    with running_capture(source, tmp_path, DumpSettings(chunk_rows=7)) as running:
        sql(
            "UPDATE t SET v = 1 WHERE id < 9",
            "DELETE FROM t WHERE id = 20",
            "INSERT INTO t VALUES (99, 1, '')",
        )
        caught_up(running, source)
        assert running.content(T) == in_source(database)
        sql("UPDATE t SET id = id + 1000 WHERE id < 9")
        caught_up(running, source)
        assert running.content(T) == in_source(database)
