"""Columns that have a name of headrace's own: refused by name, before and while their table is captured."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import IncompatibleSchemaChange, PreflightFailed
from headrace.sources.mysql import MysqlSource
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.settings import ColumnChoice
from headrace.state.records import RequestState, Scope
from tests.faults.faulty import PUBLIC_T, at_work, copied, failure_of, named, rows_of
from tests.fixtures_binlog import mariadb_server, mysql_server
from tests.fixtures_postgres import Sql
from tests.integration.either import EACH_SERVER, MYSQL, Either, on_either
from tests.requirements import req
from tests.waiting import until

__all__ = ["mariadb_server", "mysql_server"]

pytestmark = pytest.mark.timeout(180)

T = "CREATE TABLE t (id int PRIMARY KEY, n int)"
ROWS = "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)"


def without_t(db: Either, folder: Path) -> MysqlSource | PostgresSource:
    """Return the source of the database's tables but t."""
    left_out, name = str(db.table("t")), db.source.name
    if isinstance(db.source, PostgresSource):
        return PostgresSource(db.source.settings.url, exclude=(left_out,), name=name)
    settings = db.source.settings
    return MysqlSource(settings.url, folder / "place", settings.tables, (left_out,), name=name)


@req("P42", "C21")
@pytest.mark.parametrize("kind", [*EACH_SERVER, MYSQL])
def test_a_table_with_a_name_of_ours_is_refused_by_name(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with on_either(kind, request, tmp_path) as db:
        db.says(
            "CREATE TABLE good (id int PRIMARY KEY, op int, missing int)",
            "CREATE TABLE t (id int PRIMARY KEY, _op int, n int, _missing int)",
            "CREATE TABLE u (id int PRIMARY KEY, _origin_id int)",
        )
        found = {f.table: f for f in db.source.preflight() if f.name == "column-name-taken"}
        assert set(found) == {str(db.table("t")), str(db.table("u"))}
        assert "_missing, _op" in found[str(db.table("t"))].description
        with pytest.raises(PreflightFailed) as refused:
            db.source.prepare()
        assert "_origin_id" in refused.value.message
        assert "RENAME COLUMN" in refused.value.next_step
        db.says(
            "ALTER TABLE t RENAME COLUMN _op TO op",
            "ALTER TABLE t RENAME COLUMN _missing TO missing",
            "ALTER TABLE u RENAME COLUMN _origin_id TO origin_id",
        )
        copied(db.source, tmp_path)


@req("P42")
@pytest.mark.parametrize("kind", [*EACH_SERVER, MYSQL])
def test_a_column_that_comes_later_stops_by_name_and_goes_on_without_its_table(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with on_either(kind, request, tmp_path) as db:
        db.says("CREATE TABLE u (id int PRIMARY KEY)", T, ROWS)
        with at_work(db.source, tmp_path) as running:
            until(running.dumped, "the first copy")
            db.says(
                "ALTER TABLE t ADD COLUMN _op int",
                "INSERT INTO t VALUES (4, 4, 4)",
                "INSERT INTO u VALUES (1)",
            )
            error = named(failure_of(running), IncompatibleSchemaChange, str(db.table("t")), "_op")
            assert "exclude the table" in error.next_step
        with at_work(without_t(db, tmp_path), tmp_path) as running:
            until(lambda: running.holds(db.table("u"), db.rows("u")), "the other table goes on")
        assert running.error is None


@pytest.mark.postgres
@req("P42")
def test_a_dump_that_meets_the_column_first_fails_with_the_reason(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(T, ROWS)
    with at_work(PostgresSource(database, name="taken"), tmp_path) as running:
        until(running.dumped, "the first copy")
        sql("ALTER TABLE t ADD _missing int")
        asked = running.state.submit(Scope.TABLE, PUBLIC_T)

        def ended() -> bool:
            (request,) = [r for r in running.state.requests() if r.request_id == asked]
            return request.state is RequestState.FAILED and "_missing" in request.reason

        until(ended, "the dump says why it is not done")
    assert running.error is None


@pytest.mark.postgres
@req("P42", "P23")
@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_the_column_left_out_the_capture_goes_on_where_it_stopped(
    database: str, sql: Sql, tmp_path: Path, identity: str
) -> None:
    sql(T, f"ALTER TABLE t REPLICA IDENTITY {identity}", ROWS)
    with at_work(PostgresSource(database, name="taken"), tmp_path) as running:
        until(running.dumped, "the first copy")
        sql("ALTER TABLE t ADD _missing int", "UPDATE t SET _missing = 7, n = 20 WHERE id = 2")
        error = named(failure_of(running), IncompatibleSchemaChange, "public.t", "_missing")
        assert "source.columns" in error.next_step
    choice = ColumnChoice(PUBLIC_T, exclude=frozenset({"_missing"}))
    with at_work(PostgresSource(database, name="taken", columns=[choice]), tmp_path) as running:
        sql("DELETE FROM t WHERE id = 1")
        wanted = rows_of(database, "(SELECT id, n FROM t) shown")
        until(lambda: running.holds(PUBLIC_T, wanted), "the other columns as the source has them")
    assert running.error is None
