"""Values and table shapes that cannot be carried over, while running."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import UndecodableValue, WatermarkOutOfOrder
from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from headrace.state.store import RequestState, StateStore
from tests.faults.faulty import (
    PUBLIC_T,
    at_work,
    committed_behind,
    confirmed,
    copied,
    failure_of,
    follows,
    named,
)
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = pytest.mark.postgres

SLOT = "headrace_values"
U = TableId("public", "u")


@pytest.fixture
def tables(sql: Sql) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, at timestamp)",
        "CREATE TABLE u (id int PRIMARY KEY, v text)",
        "INSERT INTO t VALUES (1, '2024-01-01')",
        "INSERT INTO u VALUES (1, 'a')",
    )


def test_a_value_without_a_place_stops_the_log_before_its_transaction_is_acknowledged(
    tables: None, database: str, sql: Sql, tmp_path: Path
) -> None:
    source = PostgresSource(database, name="values")
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        before = committed_behind(
            database,
            "INSERT INTO u VALUES (2, 'with it')",
            "INSERT INTO t VALUES (2, '294276-12-31')",
        )
        sql("INSERT INTO u VALUES (3, 'behind it')")
        error = failure_of(running)
    named(error, UndecodableValue, "public.t.at")
    assert "2, " not in str(error)
    assert confirmed(database, SLOT) <= before

    # The same again, until a person acts; then nothing of the other table is missing.
    with at_work(source, tmp_path) as running:
        named(failure_of(running), UndecodableValue, "public.t.at")
    without = PostgresSource(database, exclude=("public.t",), name="values")
    with at_work(without, tmp_path) as running:
        follows(running, database, U)


def test_a_table_that_was_left_out_for_a_while_is_copied_again_when_it_returns(
    tables: None, database: str, sql: Sql, tmp_path: Path
) -> None:
    whole = PostgresSource(database, name="values")
    copied(whole, tmp_path)
    copied(PostgresSource(database, exclude=("public.t",), name="values"), tmp_path)
    sql("INSERT INTO t VALUES (2, '2024-01-02')")
    with at_work(whole, tmp_path) as running:
        follows(running, database)


def test_a_value_without_a_place_fails_the_copy_of_its_table_only(
    tables: None, database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("INSERT INTO t VALUES (2, '294276-12-31')")
    source = PostgresSource(database, name="values")
    with at_work(source, tmp_path) as running:
        until(
            lambda: bool(running.state.requests()) and ended(running.state), "the first copy ends"
        )
        (request,) = running.state.requests()
        assert request.state is RequestState.FAILED
        assert "public.t.at" in request.reason
        follows(running, database, U)
        sql("UPDATE t SET at = '2024-01-02' WHERE id = 2")
        again = running.state.submit("TABLE", PUBLIC_T)
        until(lambda: done(running.state, again), "the copy after the repair")
        follows(running, database)
    assert running.error is None


def ended(state: StateStore) -> bool:
    ends = (RequestState.COMPLETED, RequestState.FAILED)
    return all(r.state in ends for r in state.requests())


def done(state: StateStore, request_id: str) -> bool:
    return any(
        r.request_id == request_id and r.state is RequestState.COMPLETED for r in state.requests()
    )


@req("C60")
def test_a_table_dropped_while_running_leaves_the_others_going(
    tables: None, database: str, sql: Sql, tmp_path: Path
) -> None:
    with at_work(PostgresSource(database, name="values"), tmp_path) as running:
        until(running.dumped, "the first copy")
        sql(
            "INSERT INTO t VALUES (5, '2024-01-05')",
            "DROP TABLE t",
            "INSERT INTO u VALUES (2, 'b')",
        )
        bad = running.state.submit("TABLE", PUBLIC_T)
        follows(running, database, U)
        until(lambda: ended(running.state), "the request ends")
        failed = next(r for r in running.state.requests() if r.request_id == bad)
        assert failed.state is RequestState.FAILED
        assert "public.t" in failed.reason
    assert running.error is None
    with at_work(PostgresSource(database, name="values"), tmp_path) as running:
        sql("INSERT INTO u VALUES (3, 'c')")
        follows(running, database, U)
    assert running.error is None


@req("C30")
def test_a_table_renamed_while_running_goes_on_under_its_new_name_if_that_matches(
    tables: None, database: str, sql: Sql, tmp_path: Path
) -> None:
    moved = TableId("public", "moved")
    with at_work(
        PostgresSource(database, tables=("public.*",), name="values"), tmp_path
    ) as running:
        until(running.dumped, "the first copy")
        sql("INSERT INTO t VALUES (5, '2024-01-05')")
        follows(running, database)
        sql("ALTER TABLE t RENAME TO moved", "INSERT INTO moved VALUES (6, '2024-01-06')")
        follows(running, database, moved)
    assert running.error is None


@req("C30")
def test_a_table_renamed_out_of_the_patterns_leaves_the_others_going(
    tables: None, database: str, sql: Sql, tmp_path: Path
) -> None:
    source = PostgresSource(database, tables=("public.t", "public.u"), name="values")
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        sql("ALTER TABLE t RENAME TO moved", "INSERT INTO moved VALUES (6, '2024-01-06')")
        sql("INSERT INTO u VALUES (2, 'b')")
        follows(running, database, U)
    assert running.error is None


@req("T4")
def test_a_foreign_row_in_the_watermark_table_stops_before_it_is_acknowledged(
    tables: None, database: str, sql: Sql, tmp_path: Path
) -> None:
    source = PostgresSource(database, name="values", watermark="table")
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        before = committed_behind(
            database, "INSERT INTO headrace.watermarks VALUES (7, 'low', 'x', 'y')"
        )
        named(failure_of(running), WatermarkOutOfOrder, "headrace.watermarks")
    assert confirmed(database, SLOT) <= before
