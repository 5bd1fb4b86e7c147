"""Whole dumps on a real server whose chunks end for a reason of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from headrace.testing.postgres import DebianPostgres
from headrace.watermark.settings import DumpSettings
from tests.fixtures_postgres import Sql
from tests.integration.running import running_capture
from tests.requirements import req
from tests.waiting import until

pytestmark = pytest.mark.postgres

T = TableId("public", "t")


def test_chunks_that_end_with_their_bytes_do_not_end_the_dump(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT g, repeat('x', 20000) FROM generate_series(1, 60) g",
    )
    source = PostgresSource(database)
    source.settings = replace(source.settings, chunk_bytes=100_000)
    with running_capture(source, tmp_path, DumpSettings(chunk_rows=50)) as running:
        until(running.dumped, "the dump")
        (progress,) = running.state.progress(running.state.requests()[0].request_id)
    assert progress.rows_emitted == 60
    assert progress.chunks > 10
    assert sum(running.content(T).values()) == 60


@pytest.mark.debian_postgres
@req("T1", "T3")
def test_a_key_that_ignores_case_is_dumped_beside_changes_of_its_spelling(
    debian_server: DebianPostgres, tmp_path: Path
) -> None:
    url = debian_server.create_database("spelling")
    try:
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute("CREATE EXTENSION citext")
            admin.execute("CREATE TABLE t (a int, k citext, v text, PRIMARY KEY (a, k))")
            admin.execute(
                "INSERT INTO t SELECT g % 3, CASE WHEN g % 2 = 0 THEN 'K' ELSE 'k' END || g, 'old'"
                " FROM generate_series(1, 60) g"
            )
            source = PostgresSource(url)
            with running_capture(source, tmp_path, DumpSettings(chunk_rows=7)) as running:
                for number in range(1, 61, 4):
                    admin.execute(
                        "UPDATE t SET k = upper(k::text)::citext, v = 'new' WHERE k = %s",
                        [f"k{number}"],
                    )
                until(running.dumped, "the dump")
                rows = set(admin.execute("SELECT a, k::text, v FROM t").fetchall())
                until(lambda: set(running.content(T)) == rows, "the rows of the source")
                assert sum(running.content(T).values()) == 60
    finally:
        debian_server.drop_database("spelling")
