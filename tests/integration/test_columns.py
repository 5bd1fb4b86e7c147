"""Columns that the configuration leaves out: at the source where the server can, here where it cannot."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import psycopg
import pytest

from headrace.changelog import ChangeLogReader
from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource, publication
from headrace.sources.postgres.settings import ColumnChoice
from tests.faults.faulty import PUBLIC_T, AtWork, at_work, copied
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

SECRET = "tell-nobody"


@pytest.fixture
def table(sql: Sql) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, secret text, n int)",
        f"INSERT INTO t SELECT i, '{SECRET}', i FROM generate_series(1, 5) i",
    )


def source(database: str, *choices: ColumnChoice) -> PostgresSource:
    return PostgresSource(database, name="columns", columns=choices)


def without(*columns: str) -> ColumnChoice:
    return ColumnChoice(PUBLIC_T, exclude=frozenset(columns))


def listed(database: str) -> list[str] | None:
    """Return the column list of the publication, None for every column."""
    with psycopg.connect(database) as session:
        row = session.execute(
            "SELECT (SELECT array_agg(attname::text ORDER BY attnum) FROM pg_attribute "
            "WHERE attrelid = prrelid AND attnum = ANY (prattrs)) FROM pg_publication_rel"
        ).fetchone()
    assert row is not None
    return row[0]


def shows(running: AtWork, database: str, columns: str) -> None:
    """Wait until the change log amounts to these columns of the source's table."""
    with psycopg.connect(database) as session:
        wanted = Counter(session.execute(f"SELECT {columns} FROM t".encode()).fetchall())
    until(lambda: running.holds(PUBLIC_T, wanted), f"{columns} of t as the source has them")


def assert_unseen(folder: Path) -> None:
    """Check that the secret is in no column that left the source."""
    for block in ChangeLogReader(folder / "changelog").blocks(0):
        for body in block.bodies:
            assert "secret" not in body.batch.schema.names
            assert SECRET not in str(body.batch.to_pylist())


CHANGES = (
    f"INSERT INTO t VALUES (6, '{SECRET}', 6)",
    f"UPDATE t SET secret = '{SECRET}2' WHERE id = 1",
    "UPDATE t SET n = 20 WHERE id = 2",
    "UPDATE t SET id = 30 WHERE id = 3",
    "DELETE FROM t WHERE id = 4",
)


@req("P23", "C18")
@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
@pytest.mark.parametrize("lists", [True, False], ids=["server with lists", "server without"])
def test_a_column_that_is_left_out_never_comes_and_its_table_stays_writable(
    table: None, database: str, sql: Sql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    identity: str, lists: bool,
) -> None:  # fmt: skip
    if not lists:
        # As on 14: the server cannot choose columns.
        monkeypatch.setattr(publication, "CHOOSY_VERSION", 99)
    sql(f"ALTER TABLE t REPLICA IDENTITY {identity}")
    with at_work(source(database, without("secret")), tmp_path) as running:
        until(running.dumped, "the copy")
        # A list that lacks a column of the identity would make every update fail.
        assert listed(database) == (["id", "n"] if lists and identity == "DEFAULT" else None)
        sql(*CHANGES)
        shows(running, database, "id, n")
        assert_unseen(tmp_path)
    assert running.error is None


@req("P23")
def test_the_key_is_kept_and_preflight_says_so(table: None, database: str, sql: Sql) -> None:
    choice = ColumnChoice(PUBLIC_T, exclude=frozenset({"id", "secret", "nonsense"}))
    chosen = source(database, choice)
    found = {finding.name for finding in chosen.preflight()}
    assert found == {"key-column-kept", "unknown-column"}
    chosen.prepare()
    assert listed(database) == ["id", "n"]
    assert [column.name for column in chosen.tables()[0].columns] == ["id", "n"]
    only = source(database, ColumnChoice(PUBLIC_T, include=frozenset({"n"})))
    assert [column.name for column in only.tables()[0].columns] == ["id", "n"]


@req("P23")
@pytest.mark.parametrize("lists", [True, False], ids=["server with lists", "server without"])
def test_a_key_that_the_choice_leaves_out_comes_all_the_same(
    table: None, database: str, sql: Sql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lists: bool
) -> None:  # fmt: skip
    if not lists:
        monkeypatch.setattr(publication, "CHOOSY_VERSION", 99)
    with at_work(source(database, without("id", "secret")), tmp_path) as running:
        until(running.dumped, "the copy")
        sql(*CHANGES)
        # Under its key each change finds its row: by the log, and by chunks.
        shows(running, database, "id, n")
        assert_unseen(tmp_path)
    assert running.error is None


@req("P23", "P33")
def test_a_new_column_of_a_table_with_left_out_ones_is_captured_with_every_row(
    table: None, database: str, sql: Sql, tmp_path: Path
) -> None:
    with at_work(source(database, without("secret")), tmp_path) as running:
        until(running.dumped, "the copy")
        # The publication's list does not have it: what is written now comes by the dump alone.
        sql("ALTER TABLE t ADD w int", "UPDATE t SET w = id", *CHANGES)
        shows(running, database, "id, n, w")
        assert listed(database) == ["id", "n", "w"]
        sql("UPDATE t SET w = 7 WHERE id = 1")
        shows(running, database, "id, n, w")
        assert_unseen(tmp_path)
    assert running.error is None


@req("P23")
def test_another_choice_takes_effect_at_the_next_start(
    table: None, database: str, sql: Sql, tmp_path: Path
) -> None:
    copied(source(database), tmp_path)
    with at_work(source(database, without("n")), tmp_path) as running:
        until(lambda: listed(database) == ["id", "secret"], "the list")
        until(
            lambda: any(r.table == TableId("public", "t") for r in running.state.requests()),
            "a dump",
        )
        shows(running, database, "id, secret")
    with at_work(source(database), tmp_path) as running:
        until(lambda: listed(database) is None, "no list")
        sql("UPDATE t SET n = 50 WHERE id = 5")
        shows(running, database, "id, secret, n")
    assert running.error is None
