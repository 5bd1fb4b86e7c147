"""A table that somebody has locked for long holds up what reads that table, and nothing else.

Migrations do it, and a transaction that is only prepared may hold its locks for days.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from headrace.state.records import OPEN, RESTING, RequestState, Scope
from tests.faults.faulty import PUBLIC_T, AtWork, at_work, follows
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

U, FRESH = TableId("public", "u"), TableId("public", "fresh")
WITHIN_S = 30.0
"""Half of what a statement may take that has a limit."""


@pytest.fixture
def tables(sql: Sql) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT n, 'v' FROM generate_series(1, 5) n",
        "CREATE TABLE u (id int PRIMARY KEY)",
        "INSERT INTO u VALUES (1)",
    )


@contextmanager
def locked(url: str, table: str, mode: str) -> Iterator[None]:
    """Hold a lock until the block ends."""
    with psycopg.connect(url) as session:
        session.execute(f"LOCK TABLE {table} IN {mode} MODE".encode())
        yield
        session.rollback()


def until_waited(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as session:
        query = "SELECT 1 FROM pg_locks WHERE locktype = 'relation' AND NOT granted"
        until(lambda: session.execute(query).fetchone(), "a statement waits for the lock")


def state_of(running: AtWork, request: str) -> RequestState:
    found = running.state.request(request)
    assert found is not None
    return found.state


@req("N02", "N08", "P14")
@pytest.mark.parametrize("ends", [RequestState.PAUSED, RequestState.CANCELLED])
def test_who_waits_for_a_locked_table_is_overtaken_and_hears_people(
    tables: None, database: str, tmp_path: Path, ends: RequestState
) -> None:
    with at_work(PostgresSource(database, name="locks"), tmp_path) as running:
        until(running.dumped, "the first copy")
        with locked(database, "t", "ACCESS EXCLUSIVE"):
            asked = running.state.submit(Scope.TABLE, PUBLIC_T)
            until_waited(database)
            urgent = running.state.submit(Scope.TABLE, U, priority=1)
            until(
                lambda: state_of(running, urgent) is RequestState.COMPLETED,
                "the table that nobody locked",
                WITHIN_S,
            )
            until_waited(database)
            assert running.state.move(asked, ends, since=OPEN)
            until(lambda: running.state.get(RESTING) == asked, "it is heard", WITHIN_S)
        again = running.state.submit(Scope.TABLE, PUBLIC_T, priority=1)
        until(lambda: state_of(running, again) is RequestState.COMPLETED, "a dump without the lock")
        follows(running, database)
    assert running.error is None


@req("C30", "N08")
def test_a_new_table_that_is_under_maintenance_holds_no_dump_up(
    tables: None, database: str, sql: Sql, tmp_path: Path
) -> None:
    with at_work(PostgresSource(database, name="locks"), tmp_path) as running:
        until(running.dumped, "the first copy")
        # As CREATE INDEX does, which takes its time on a table that was just filled.
        with psycopg.connect(database) as session:
            session.execute("CREATE TABLE fresh (id int PRIMARY KEY)")
            session.execute("INSERT INTO fresh VALUES (1)")
            session.commit()
            session.execute("LOCK TABLE fresh IN SHARE MODE")
            until_waited(database)
            asked = running.state.submit(Scope.TABLE, PUBLIC_T)
            until(
                lambda: state_of(running, asked) is RequestState.COMPLETED,
                "a dump of another table",
                WITHIN_S,
            )
            session.rollback()
        until(running.dumped, "every dump")
        until(lambda: FRESH in running.state.copies(), "the new table joins")
        until(running.dumped, "every dump")
        follows(running, database, FRESH)
    assert running.error is None
