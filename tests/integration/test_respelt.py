"""Stored rows read otherwise from one moment on, without a word in the log: the table is read again."""

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

LABELS = ("CREATE TYPE mood AS ENUM ('sad', 'ok')", "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'")
MADE = {
    "enum": (LABELS[0], "mood", "sad", LABELS[1]),
    "array": (LABELS[0], "mood[]", "{sad,ok}", LABELS[1]),
    "domain": (f"{LABELS[0]}; CREATE DOMAIN d AS mood", "d", "sad", LABELS[1]),
    "composite of it": (f"{LABELS[0]}; CREATE TYPE c AS (m mood)", "c[]", '{(sad)}', LABELS[1]),
    "range": (
        f"{LABELS[0]}; CREATE TYPE r AS RANGE (subtype = mood)", "r", "[sad,ok]", LABELS[1]
    ),
    "composite": (
        "CREATE TYPE c AS (x int)", "c", "(1)", "ALTER TYPE c ADD ATTRIBUTE y int"
    ),
}  # fmt: skip
"""How a type is made, what a column is of, a value, and what makes it read otherwise."""


def source_rows(database: str) -> list[tuple[int, str]]:
    with psycopg.connect(database) as session:
        return sorted(session.execute("SELECT id, v::text FROM t").fetchall())


def follows(running: Running, database: str) -> None:
    def same() -> bool:
        assert running.error is None, running.error
        return sorted(running.content(T).elements()) == source_rows(database)

    until(same, "the table as the source has it", 30)


@req("C30")
@pytest.mark.parametrize("kind", MADE)
def test_rows_whose_type_reads_otherwise_are_read_again(
    kind: str, database: str, sql: Sql, tmp_path: Path
) -> None:
    made, column, value, renamed = MADE[kind]
    sql(*made.split("; "), f"CREATE TABLE t (id int PRIMARY KEY, v {column})")
    sql(f"INSERT INTO t SELECT n, '{value}' FROM generate_series(1, 20) n")
    with running_capture(PostgresSource(database), tmp_path, DUMP) as running:
        # Its rows change where the log says nothing.
        running.judged = False
        until(running.dumped, "the first copy")
        with psycopg.connect(database) as writer:
            # Told as it was when it was written, and committed behind the change.
            writer.execute(f"UPDATE t SET v = '{value}' WHERE id = 3")
            sql(renamed)
            sql("INSERT INTO t SELECT 21, v FROM t WHERE id = 1")
            running.wait_for_scn(int(source_end(database)))
        follows(running, database)


@req("C30")
def test_it_is_found_that_rows_read_otherwise_while_nothing_ran(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(LABELS[0], "CREATE TABLE t (id int PRIMARY KEY, v mood)", "INSERT INTO t VALUES (1, 'sad')")
    with running_capture(PostgresSource(database), tmp_path, DUMP) as running:
        until(running.dumped, "the first copy")
    sql(LABELS[1])
    with running_capture(PostgresSource(database), tmp_path, DUMP) as running:
        running.judged = False
        follows(running, database)


@req("C30")
def test_a_label_that_comes_makes_nothing_be_read_again(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(LABELS[0], "CREATE TABLE t (id int PRIMARY KEY, v mood)", "INSERT INTO t VALUES (1, 'sad')")
    with running_capture(PostgresSource(database), tmp_path, DUMP) as running:
        until(running.dumped, "the first copy")
        sql("ALTER TYPE mood ADD VALUE 'glad' BEFORE 'ok'", "INSERT INTO t VALUES (2, 'glad')")
        follows(running, database)
        kept = running.state.get("catalog")
        until(lambda: running.state.get("catalog") != kept, "a look that has seen the label")
        assert len(running.state.requests()) == 1


def source_end(database: str) -> str:
    """Return what the log has to be covered up to."""
    with psycopg.connect(database) as session:
        row = session.execute("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint - 1").fetchone()
    assert row is not None
    return str(row[0])
