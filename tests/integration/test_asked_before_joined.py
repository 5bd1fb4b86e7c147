"""Somebody asks for rows of a table that has yet to join: its changes pass by until then, so nothing is read."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from headrace.sources.postgres import PostgresSource
from headrace.state.records import Cause, RequestState, Scope
from tests.faults.faulty import PUBLIC_T, AtWork, at_work, copied, follows
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

ASKED = {
    "the table": {"scope": Scope.TABLE},
    "keys": {"scope": Scope.PRIMARY_KEYS, "keys": [("1",), ("2",)]},
    "a condition": {"scope": Scope.PREDICATE, "predicate": "id < 3"},
}


@req("P02", "C30")
@pytest.mark.parametrize("what", ASKED)
def test_a_request_for_a_table_that_has_yet_to_join_is_carried_out_once_it_has(
    database: str, sql: Sql, tmp_path: Path, what: str
) -> None:
    """A row that goes while the publication lacks the table is in no log, and would stay if it had been read."""
    sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2), (3)")
    sql("CREATE TABLE other (id int PRIMARY KEY)")
    source = PostgresSource(database)
    copied(source, tmp_path)
    sql("ALTER PUBLICATION headrace DROP TABLE t")
    with psycopg.connect(database) as writer, at_work(source, tmp_path) as running:
        running.judged = False
        writer.execute("DELETE FROM t WHERE id = 1")
        until(lambda: is_joining(running), "the look that finds it out of the publication")
        asked = running.state.submit(table=PUBLIC_T, priority=5, **ASKED[what])  # type: ignore[arg-type]
        later = running.state.submit(Scope.TABLE, PUBLIC_T._replace(name="other"))
        until(lambda: state_of(running, later) is RequestState.COMPLETED, "the request behind it")
        assert state_of(running, asked) is RequestState.QUEUED
        writer.commit()
        until(lambda: copies(running) == 2, "the copy")
        until(lambda: state_of(running, asked) is RequestState.COMPLETED, "the request")
        follows(running, database)


@req("P02", "C30")
def test_a_request_for_a_table_that_cannot_be_captured_fails_with_the_reason(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """Once it was captured, and its configuration names it still."""
    sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with at_work(PostgresSource(database), tmp_path) as running:
        running.judged = False
        until(running.dumped, "the first copy")
        sql("DROP TABLE t", "CREATE TABLE t (id int)", "INSERT INTO t VALUES (1)")
        until(lambda: is_refused(running), "the refusal")
        asked = running.state.submit(Scope.TABLE, PUBLIC_T)
        until(lambda: state_of(running, asked) is RequestState.FAILED, "the request's end")
        request = running.state.request(asked)
        assert request is not None
        assert "REPLICA IDENTITY" in request.reason


def is_joining(running: AtWork) -> bool:
    """Return whether the table waits for those who write to it."""
    return ["public", "t"] in json.loads(running.state.get("catalog") or "{}")["joining"].values()


def is_refused(running: AtWork) -> bool:
    """Return whether it is shown that the table cannot be captured."""
    copy = running.state.copies().get(PUBLIC_T)
    return copy is not None and copy.progress.state == "refused"


def state_of(running: AtWork, request_id: str) -> RequestState:
    """Return how a request stands."""
    request = running.state.request(request_id)
    assert request is not None
    return request.state


def copies(running: AtWork) -> int:
    """Return how often the table was copied for its own sake."""
    return sum(
        request.cause is Cause.FIRST_COPY and request.state is RequestState.COMPLETED
        for request in running.state.requests()
    )
