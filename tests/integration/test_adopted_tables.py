"""From where on the log of a real server has all of a table that is filled elsewhere."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.lsn import parse_lsn
from tests.faults.faulty import at_work
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

FIRST, FRESH = TableId("public", "first"), TableId("public", "fresh")


def always(_table: TableId) -> bool:
    return True


def asked(database: str, query: str) -> str:
    with psycopg.connect(database, autocommit=True) as connection:
        return " ".join(str(row[0]) for row in connection.execute(query.encode()).fetchall())


def here(database: str) -> int:
    return parse_lsn(asked(database, "select pg_current_wal_insert_lsn()"))


@req("D34")
def test_a_table_is_whole_in_the_log_behind_whoever_wrote_to_it_before_it_joined(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("create table first (id int primary key)")
    source = PostgresSource(database, ["public.*"])
    before = here(database)
    with at_work(source, tmp_path, adopted=always) as running:
        until(lambda: running.state.since(FIRST) is not None, "the first table is noted")
        since = running.state.since(FIRST)
        # Of a source that is captured for the first time: where its slot begins.
        assert since is not None
        assert before <= since <= here(database)
        until(lambda: bool(running.state.get("catalog")), "a look was worked off")
    sql("create table fresh (id int primary key)")
    with psycopg.connect(database) as writer:
        writer.execute("insert into fresh values (1)")
        with at_work(PostgresSource(database, ["public.*"]), tmp_path, adopted=always) as running:
            until(
                lambda: "fresh" in asked(database, "select tablename from pg_publication_tables"),
                "it joins",
            )
            assert running.state.since(FRESH) is None
            begun = here(database)
            writer.commit()
            until(lambda: running.state.since(FRESH) is not None, "the new table is noted")
            since = running.state.since(FRESH)
            assert since is not None
            # The log lacks the row of this commit, which only a later dump can have.
            assert since > begun
            assert running.state.since(FIRST) is not None
            assert running.state.requests() == []
