"""Somebody changes what a publication holds while tables of it are captured: no change is missed in silence."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from headrace.watermark.settings import DumpSettings
from tests.fixtures_postgres import Sql
from tests.integration.running import Running, running_capture
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

T = TableId("public", "t")
DUMP = DumpSettings(chunk_rows=10, request_interval_s=0.05, look_interval_s=0.2)


def follows(running: Running, database: str) -> None:
    """Wait until the change log amounts to what the source holds."""

    def same() -> bool:
        assert running.error is None, running.error
        with psycopg.connect(database) as session:
            rows = sorted(session.execute("SELECT * FROM t").fetchall())
        return sorted(running.content(T).elements()) == rows

    until(same, "the table as the source has it", 30)


@pytest.fixture
def table(sql: Sql) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text, w text)")
    sql("INSERT INTO t SELECT n, 'v', 'w' FROM generate_series(1, 20) n")


@req("C30")
def test_a_table_that_was_taken_out_of_our_publication_is_copied_anew(
    table: None, database: str, sql: Sql, tmp_path: Path
) -> None:
    with running_capture(PostgresSource(database), tmp_path, DUMP) as running:
        until(running.dumped, "the first copy")
    sql(
        "ALTER PUBLICATION headrace DROP TABLE t",
        "UPDATE t SET v = 'unseen' WHERE id < 5",
        "DELETE FROM t WHERE id = 9",
    )
    with running_capture(PostgresSource(database), tmp_path, DUMP) as running:
        follows(running, database)
        sql("UPDATE t SET v = 'seen' WHERE id > 15", "DELETE FROM t WHERE id = 3")
        follows(running, database)
