"""Requests that cannot be carried out fail with a reason, and everything else goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from headrace.state.store import DumpRequest, RequestState
from tests.faults.faulty import PUBLIC_T, AtWork, at_work, follows
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = pytest.mark.postgres


def request(running: AtWork, request_id: str) -> DumpRequest:
    """Return a request once it has ended."""

    def ended() -> bool:
        if running.error is not None:
            raise running.error
        return found().state in (RequestState.COMPLETED, RequestState.FAILED)

    def found() -> DumpRequest:
        return next(r for r in running.state.requests() if r.request_id == request_id)

    until(ended, f"request {request_id} ends")
    return found()


@req("C60")
@pytest.mark.parametrize(
    ("table", "keys", "reason"),
    [
        ("public.nowhere", [], "public.nowhere is not captured"),
        ("public.t", [("not-a-number",)], "public.t"),
        ("public.t", [("1", "2")], "public.t: a key has 1 columns (id)"),
        ("public.bare", [("1",)], "public.bare"),
    ],
    ids=["unknown table", "key of another type", "key with too many columns", "table without key"],
)
def test_a_request_that_cannot_be_carried_out_fails_and_the_rest_goes_on(
    database: str, sql: Sql, tmp_path: Path, table: str, keys: list[tuple[str, ...]], reason: str
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
        "CREATE TABLE bare (id int)",
        "ALTER TABLE bare REPLICA IDENTITY FULL",
    )
    with at_work(PostgresSource(database, name="requests"), tmp_path) as running:
        until(running.dumped, "the first copy")
        scope = "PRIMARY_KEYS" if keys else "TABLE"
        bad = running.state.submit(scope, TableId.parse(table), keys)
        good = running.state.submit("PRIMARY_KEYS", PUBLIC_T, [("2",)])
        sql("UPDATE t SET v = 'later' WHERE id = 3")

        failed = request(running, bad)
        assert failed.state is RequestState.FAILED
        assert reason in failed.reason
        assert "not-a-number" not in failed.reason
        assert request(running, good).state is RequestState.COMPLETED
        follows(running, database)
    assert running.error is None
