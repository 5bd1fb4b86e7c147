"""P38 to P40: the watermark table has a schema of its own, and one row, however many windows there were."""

from __future__ import annotations

import uuid
from pathlib import Path

import psycopg
import pytest

from headrace.model.mark import Mark, MarkKind
from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from headrace.watermark.settings import DumpSettings
from tests.fixtures_postgres import Sql
from tests.integration.running import running_capture
from tests.requirements import req
from tests.sources.postgres.support import opened
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]

WINDOWS = 2_000
ROWS, CHUNK = 100, 10
NAMESAKE = TableId("public", "watermarks")


def one(url: str, query: str) -> tuple[object, ...]:
    with psycopg.connect(url) as session:
        row = session.execute(query.encode()).fetchone()
    assert row is not None
    return row


@req("P38", "P39", "P40", "P54")
def test_one_row_in_a_schema_of_its_own_after_thousands_of_windows(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    # An application may have a table of that name.
    sql(
        "CREATE TABLE watermarks (id int PRIMARY KEY, token text)",
        "INSERT INTO watermarks VALUES (1, 'mine')",
    )
    written = []
    with opened(database, tmp_path, watermark="table") as log:
        assert one(database, "SELECT count(*) FROM headrace.watermarks") == (1,)
        for _ in range(WINDOWS):
            token = uuid.uuid4().hex
            for kind in (MarkKind.LOW, MarkKind.HIGH):
                written.append(Mark(kind, token, "run"))
                log.writer.write(written[-1])
        sql("UPDATE watermarks SET token = 'still mine'")
        got = log.collect()
    assert [received.mark for received in got.marks][:-1] == written
    assert got.changes("public.watermarks") == [("=U", 1, "still mine")]
    assert {body.table for block in got.blocks for body in block.bodies} == {NAMESAKE}
    assert one(database, "SELECT count(*), min(kind) FROM headrace.watermarks") == (1, "low")
    tokens = one(database, "SELECT token FROM headrace.watermarks")
    assert tokens == (got.marks[-1].mark.token,)
    assert one(
        database, "SELECT count(*) FROM pg_class WHERE relnamespace = 'headrace'::regnamespace"
        " AND relkind = 'r'"
    ) == (1,)  # fmt: skip


@req("P15", "P39", "P46")
def test_the_server_counts_two_updates_of_the_row_for_each_chunk(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        f"INSERT INTO t SELECT n, 'v' FROM generate_series(1, {ROWS}) n",
    )
    source = PostgresSource(database, watermark="table")
    dump = DumpSettings(chunk_rows=CHUNK, look_interval_s=3_600.0)
    with running_capture(source, tmp_path, dump) as running:
        until(running.dumped, "the dump")
        (progress,) = running.state.progress(running.state.requests()[0].request_id)
    assert progress.chunks == ROWS // CHUNK
    end_mark = 1
    counted = (
        "SELECT n_tup_ins, n_tup_upd, n_live_tup FROM pg_stat_user_tables"
        " WHERE relid = 'headrace.watermarks'::regclass"
    )
    # A session tells its counts when it ends.
    until(lambda: one(database, counted)[1] == 2 * progress.chunks + end_mark, "the counts", 20)
    assert one(database, counted)[::2] == (1, 1)
