"""What is set for a role or in the environment neither cuts reads short nor has values look otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.connection import connect
from headrace.sources.postgres.settings import PostgresSettings
from headrace.state.records import RequestState, Scope
from headrace.testing.postgres_server import PostgresServer
from headrace.watermark.settings import DumpSettings
from tests.fixtures_postgres import LOGIN, Sql, as_role
from tests.integration.running import running_capture
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

T = TableId("public", "t")
DUMP = DumpSettings(chunk_rows=1_000, request_interval_s=0.05)
LIMITS = ("statement_timeout = '300ms'", "transaction_timeout = '300ms'")


@pytest.fixture
def role(postgres_server: PostgresServer) -> Iterator[str]:
    postgres_server.execute(f"CREATE ROLE hurried SUPERUSER REPLICATION {LOGIN}")
    yield "hurried"
    postgres_server.execute("REASSIGN OWNED BY hurried TO postgres", "DROP ROLE hurried")


@req("P13", "N02")
@pytest.mark.parametrize("limit", LIMITS)
def test_no_limit_of_the_roles_ends_a_chunk_again_and_again(
    limit: str, role: str, database: str, sql: Sql, tmp_path: Path
) -> None:
    with psycopg.connect(database) as session:
        if "transaction" in limit and session.info.server_version < 170_000:
            pytest.skip("the setting came with 17")
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT n, 'v' FROM generate_series(1, 20) n",
        f"ALTER ROLE {role} SET {limit}",
    )
    with running_capture(PostgresSource(as_role(database, role)), tmp_path, DUMP) as running:
        until(running.dumped, "the first copy")
        # Longer than the limit, and shorter than the wait.
        slow = "pg_sleep(0.05) IS NOT NULL"
        asked = running.state.submit(Scope.PREDICATE, T, predicate=slow)

        def done() -> bool:
            request = running.state.request(asked)
            return request is not None and request.state is RequestState.COMPLETED

        until(done, "a dump whose chunk takes a second", 20)


def test_a_role_that_only_reads_by_default_makes_publication_and_marks(
    role: str, database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    sql(f"ALTER ROLE {role} SET default_transaction_read_only = on")
    source = PostgresSource(as_role(database, role), watermark="table")
    with running_capture(source, tmp_path, DUMP) as running:
        until(running.dumped, "the first copy")


@pytest.mark.parametrize("replication", [False, True])
def test_the_environment_says_nothing_about_how_values_look(
    replication: bool, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGTZ", "Asia/Kolkata")
    monkeypatch.setenv("PGDATESTYLE", "German")
    with connect(PostgresSettings(url=database), replication=replication) as session:
        assert session.value("SHOW TimeZone") == "UTC"
        assert session.value("SHOW DateStyle").startswith("ISO")
