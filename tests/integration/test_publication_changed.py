"""Somebody changes what a publication holds while tables of it are captured: no change is missed in silence."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from headrace.errors import PreflightFailed, SourceError
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


def follows(running: Running, database: str) -> None:
    """Wait until the change log amounts to what the source holds."""

    def same() -> bool:
        assert running.error is None, running.error
        with psycopg.connect(database) as session:
            rows = sorted(session.execute("SELECT * FROM t").fetchall())
        return sorted(running.content(T).elements()) == rows

    until(same, "the table as the source has it", 30)


def captured_until_it_ends(source: PostgresSource, folder: Path, sql: Sql, statement: str) -> None:
    """Capture; run a statement once everything is copied; wait for the error that ends the capture."""
    with running_capture(source, folder, DUMP) as running:
        until(running.dumped, "the first copy")
        sql(statement)
        until(lambda: running.error, "the capture's end", 30)


def looked_again(running: Running, sql: Sql) -> None:
    """Wait for a look that begins now, by something that it keeps."""
    look = running.state.get("catalog")
    sql("ALTER TABLE t ALTER v SET STATISTICS 50")
    until(lambda: running.state.get("catalog") != look, "another look")


def told_columns(running: Running) -> set[tuple[str, ...]]:
    """Return the columns of each shape in which the change log holds rows of the table."""
    return {
        tuple(running.registry.get(body.schema_id).names)
        for block in running.reader.blocks(0)
        for body in block.bodies
        if body.table == T
    }


@pytest.fixture
def table(sql: Sql) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text, w text)")
    sql("INSERT INTO t SELECT n, 'v', 'w' FROM generate_series(1, 20) n")


@req("C30")
def test_a_table_that_was_taken_out_of_our_publication_is_copied_anew(
    table: None, database: str, sql: Sql, tmp_path: Path
) -> None:
    with running_capture(PostgresSource(database), tmp_path, DUMP) as running:
        until(running.dumped, "the first copy")
    sql(
        "ALTER PUBLICATION headrace DROP TABLE t",
        "UPDATE t SET v = 'unseen' WHERE id < 5",
        "DELETE FROM t WHERE id = 9",
    )
    with running_capture(PostgresSource(database), tmp_path, DUMP) as running:
        follows(running, database)
        sql("UPDATE t SET v = 'seen' WHERE id > 15", "DELETE FROM t WHERE id = 3")
        follows(running, database)


@req("C30")
@pytest.mark.parametrize("own", [True, False])
def test_rows_that_a_publication_leaves_out_from_now_on_stop_the_capture(
    table: None,
    own: bool,
    database: str,
    sql: Sql,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ours heals with the next start."""
    monkeypatch.setattr("headrace.sources.postgres.stream._WATCH_S", 0.1)
    if not own:
        sql("CREATE PUBLICATION theirs FOR TABLE t")
    name = "headrace" if own else "theirs"
    source = PostgresSource(database, publication=None if own else name)
    altered = f"ALTER PUBLICATION {name} SET TABLE t WHERE (id > 10)"
    with pytest.raises(SourceError, match=f"Publication {name} got a row filter on public.t"):
        captured_until_it_ends(source, tmp_path, sql, altered)
    sql("UPDATE t SET v = 'unseen' WHERE id < 5", "DELETE FROM t WHERE id = 9")
    if not own:
        return
    with running_capture(PostgresSource(database), tmp_path, DUMP) as running:
        follows(running, database)
        sql("UPDATE t SET v = 'seen' WHERE id > 5", "DELETE FROM t WHERE id = 3")
        follows(running, database)


@req("C30", "C21")
def test_kinds_of_change_that_a_publication_leaves_out_from_now_on_stop_the_capture(
    table: None, database: str, sql: Sql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.sources.postgres.stream._WATCH_S", 0.1)
    source = PostgresSource(database)
    altered = "ALTER PUBLICATION headrace SET (publish = 'insert')"
    with pytest.raises(SourceError, match="Publication headrace leaves out update, delete, trunc"):
        captured_until_it_ends(source, tmp_path, sql, altered)
    with pytest.raises(PreflightFailed, match="leaves out update, delete, truncate") as refused:
        PostgresSource(database).prepare()
    assert "headrace resync" in str(refused.value)


@req("C30")
def test_columns_that_a_publication_is_given_are_read_for_every_row(
    table: None, database: str, sql: Sql, tmp_path: Path
) -> None:
    """The log tells them of later changes alone; who wrote before may still be told without them."""
    sql("CREATE PUBLICATION theirs FOR TABLE t (id, v)")
    source = PostgresSource(database, publication="theirs")
    with running_capture(source, tmp_path, DUMP) as running, psycopg.connect(database) as writer:
        # Its rows change where the log says nothing.
        running.judged = False
        until(running.dumped, "the first copy")
        writer.execute("UPDATE t SET v = 'early' WHERE id = 7")
        sql("ALTER PUBLICATION theirs SET TABLE t", "UPDATE t SET v = 'late' WHERE id = 8")
        # Not the content: a look may find by now that the publication holds the table by another entry, and empties it
        # until this writer is gone.
        until(lambda: told_columns(running) == {("id", "v"), ("id", "v", "w")}, "the new shape")
        writer.commit()
        follows(running, database)


@req("C30")
def test_generated_columns_that_a_publication_tells_are_read_for_every_row(
    table: None, database: str, sql: Sql, tmp_path: Path
) -> None:
    with psycopg.connect(database) as session:
        if session.info.server_version < 180_000:
            pytest.skip("publications tell generated columns from 18 on")
    sql("CREATE PUBLICATION theirs FOR TABLE t WITH (publish_generated_columns = stored)")
    with running_capture(PostgresSource(database, publication="theirs"), tmp_path, DUMP) as running:
        running.judged = False
        until(running.dumped, "the first copy")
        sql(
            "ALTER TABLE t ADD g int GENERATED ALWAYS AS (id * 2) STORED",
            "UPDATE t SET v = 'x' WHERE id = 1",
        )
        follows(running, database)
        sql("ALTER TABLE t ALTER g SET EXPRESSION AS (id * 3)", "UPDATE t SET v = 'y' WHERE id = 1")
        follows(running, database)


OTHERWISE = {
    "a table": (
        "FOR TABLE t, u",
        ("ALTER PUBLICATION theirs DROP TABLE t",),
        ("ALTER PUBLICATION theirs ADD TABLE t",),
    ),
    "rows of it": (
        "FOR TABLE t, u",
        ("ALTER PUBLICATION theirs SET TABLE u, t WHERE (id > 10)",),
        ("ALTER PUBLICATION theirs SET TABLE u, t",),
    ),
    "its schema": (
        "FOR TABLES IN SCHEMA public",
        ("ALTER PUBLICATION theirs DROP TABLES IN SCHEMA public",),
        ("ALTER PUBLICATION theirs ADD TABLES IN SCHEMA public",),
    ),
    "a table out of its schema": (
        "FOR TABLES IN SCHEMA public",
        ("CREATE SCHEMA s", "ALTER TABLE t SET SCHEMA s", "SET search_path = s"),
        ("ALTER TABLE t SET SCHEMA public", "RESET search_path"),
    ),
    "kinds of change": (
        "FOR ALL TABLES",
        ("ALTER PUBLICATION theirs SET (publish = 'insert')",),
        ("ALTER PUBLICATION theirs SET (publish = 'insert, update, delete, truncate')",),
    ),
    "kinds of change, with its owner": (
        "FOR TABLE t, u",
        (
            "ALTER PUBLICATION theirs OWNER TO pg_monitor",
            "ALTER PUBLICATION theirs SET (publish = 'insert')",
        ),
        ("ALTER PUBLICATION theirs SET (publish = 'insert, update, delete, truncate')",),
    ),
}


@req("C30")
@pytest.mark.parametrize("what", OTHERWISE)
def test_what_was_taken_out_of_a_publication_and_put_back_is_copied_anew(
    table: None, what: str, database: str, sql: Sql, tmp_path: Path
) -> None:
    """Nothing of ours ran meanwhile, and afterwards the publication looks as it did before."""
    holds, taken, put = OTHERWISE[what]
    sql("CREATE TABLE u (id int PRIMARY KEY)", f"CREATE PUBLICATION theirs {holds}")
    source = PostgresSource(database, ["public.t"], publication="theirs")
    with running_capture(source, tmp_path, DUMP) as running:
        until(running.dumped, "the first copy")
    sql(*taken, "UPDATE t SET v = 'unseen' WHERE id < 5", "DELETE FROM t WHERE id = 9", *put)
    with running_capture(source, tmp_path, DUMP) as running:
        follows(running, database)
        sql("UPDATE t SET v = 'seen' WHERE id > 15", "DELETE FROM t WHERE id = 3")
        follows(running, database)
        until(running.dumped, "the copy")
        asked = len(running.state.requests())
    assert asked == 2
    with running_capture(source, tmp_path, DUMP) as running:
        sql("UPDATE t SET v = 'later' WHERE id > 12")
        follows(running, database)
        assert len(running.state.requests()) == asked


@req("C30")
def test_our_own_is_no_other(table: None, database: str, sql: Sql, tmp_path: Path) -> None:
    source = PostgresSource(database)
    with running_capture(source, tmp_path, DUMP) as running:
        until(running.dumped, "the first copy")
    sql(
        "ALTER PUBLICATION headrace DROP TABLE t",
        "DELETE FROM t WHERE id = 9",
        "ALTER PUBLICATION headrace ADD TABLE t",
    )
    with running_capture(source, tmp_path, DUMP) as running:
        follows(running, database)
        until(running.dumped, "the copy")
        # Joining took it out and put it back once more, which is no reason to copy it again.
        looked_again(running, sql)
        assert len(running.state.requests()) == 2


@req("C30")
@pytest.mark.parametrize(
    ("holds", "grown", "statements"),
    [
        ("FOR TABLE t", (), ("ALTER PUBLICATION theirs ADD TABLE u",)),
        ("FOR TABLES IN SCHEMA public", (), ("GRANT SELECT ON t TO pg_monitor", "VACUUM FULL t")),
        (
            "FOR TABLES IN SCHEMA public",
            ("ALTER PUBLICATION theirs ADD TABLE t", "CREATE SCHEMA s"),
            ("ALTER TABLE t SET SCHEMA s", "ALTER TABLE s.t SET SCHEMA public"),
        ),
    ],
    ids=["another is added", "rights", "held by its name too"],
)
def test_what_takes_no_table_out_copies_none(
    table: None,
    holds: str,
    grown: tuple[str, ...],
    statements: tuple[str, ...],
    database: str,
    sql: Sql,
    tmp_path: Path,
) -> None:
    sql("CREATE TABLE u (id int PRIMARY KEY)", f"CREATE PUBLICATION theirs {holds}", *grown)
    source = PostgresSource(database, ["public.t"], publication="theirs")
    with running_capture(source, tmp_path, DUMP) as running:
        until(running.dumped, "the first copy")
    sql(*statements)
    with running_capture(source, tmp_path, DUMP) as running:
        sql("UPDATE t SET v = 'later' WHERE id > 12")
        follows(running, database)
        looked_again(running, sql)
        assert len(running.state.requests()) == 1
