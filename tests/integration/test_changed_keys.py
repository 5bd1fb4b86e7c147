"""A table's key, or the order of its key, becomes another one between two chunks of the table's dump.

What the first chunks read up to is a place in the old order only, so the dump begins anew in the new one. No row is
touched by an application: nothing but the dump itself brings the rows.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from headrace.changelog import ChangeLogReader
from headrace.model.block import SystemKind
from headrace.model.schema import TableId
from headrace.observe import failpoints
from headrace.sources.base import TableDump
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.chunks import PostgresChunkReader
from headrace.state.records import RESTING, DumpProgress
from headrace.state.store import StateStore
from headrace.testing.postgres import DebianPostgres
from tests.faults.faulty import OFTEN, PUBLIC_T, AtWork, at_work, rows_of
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until
from tests.watermark.steering import pause, resume

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

CHANGES = {
    "another column": ("id", "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (code)"),
    "more columns": ("id", "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (code, id)"),
    "another type": ("name", "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id)"),
    "columns in another order": (
        "id, code",
        "CREATE UNIQUE INDEX other ON t (code, id); ALTER TABLE t REPLICA IDENTITY USING INDEX other",
    ),
    "descending": (
        "id",
        "CREATE UNIQUE INDEX other ON t (id DESC); ALTER TABLE t REPLICA IDENTITY USING INDEX other",
    ),
    "another column of the same name": (
        "id",
        """
        ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (code);
        ALTER TABLE t RENAME id TO old_id;
        ALTER TABLE t RENAME code TO id
        """,
    ),
}
BESIDE = {
    "renamed": "ALTER TABLE t RENAME id TO number",
    "an index of the same order": "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id)",
}
"""Changes of a key that leave its order as it was."""
LABELS = {
    "of a row that was read": ["'k2' TO 'x'"],
    "of the last row": ["'k8' TO 'x'"],
    "exchanged": ["'k2' TO 'x'", "'k7' TO 'k2'", "'x' TO 'k7'"],
}
AT_ONCE = replace(OFTEN, request_interval_s=0.0)
"""A pause is heard before the next chunk."""


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


@contextmanager
def resting(source: PostgresSource, folder: Path) -> Iterator[AtWork]:
    """Run a capture whose first copy a person has paused after the first chunk."""

    def asked() -> None:
        failpoints.disarm("window.after_select")
        pause(running.state, copy_of(running.state).request_id)

    failpoints.arm("window.after_select", asked)
    with at_work(source, folder, dump=AT_ONCE) as running:
        # The oracle knows rows by the key that they had first.
        running.judged = False
        until(lambda: running.state.get(RESTING), "the copy rests")
        assert copy_of(running.state).chunks == 1
        yield running


def go_on(running: AtWork) -> None:
    resume(running.state, copy_of(running.state).request_id)


def copy_of(state: StateStore) -> DumpProgress:
    """Return how far the first copy of the table is."""
    return state.progress(state.requests()[0].request_id)[0]


def keyed(sql: Sql, key: str) -> None:
    sql(
        f"CREATE TABLE t (id int NOT NULL, code int NOT NULL, name text NOT NULL, PRIMARY KEY ({key}))",
        "INSERT INTO t SELECT i, 9 - i, 'name ' || i FROM generate_series(1, 8) i",
    )


@req("A-11", "P33")
@pytest.mark.parametrize("change", CHANGES)
def test_no_row_is_left_out_when_the_key_changes_between_two_chunks(
    database: str, sql: Sql, tmp_path: Path, change: str
) -> None:
    key, statements = CHANGES[change]
    keyed(sql, key)
    with resting(PostgresSource(database, name="keys"), tmp_path) as running:
        sql(statements)
        go_on(running)
        until(running.dumped, "the copy")
        assert running.content(PUBLIC_T) == rows_of(database, "t")
        # The two rows of the first chunk, then all eight.
        assert copy_of(running.state).rows_read == 10
    assert running.error is None


@req("A-11", "P33", "H08")
@pytest.mark.parametrize("change", ["another column", "more columns", "columns in another order"])
def test_no_row_is_left_out_when_the_key_changes_while_nothing_runs(
    database: str, sql: Sql, tmp_path: Path, change: str
) -> None:
    key, statements = CHANGES[change]
    keyed(sql, key)
    source = PostgresSource(database, name="keys")
    with resting(source, tmp_path):
        pass
    sql(statements)
    with at_work(source, tmp_path) as running:
        running.judged = False
        go_on(running)
        until(running.dumped, "the copy")
        assert running.content(PUBLIC_T) == rows_of(database, "t")
        assert copy_of(running.state).rows_read == 10
    assert running.error is None


@req("A-11", "H08")
@pytest.mark.parametrize("change", BESIDE)
def test_a_dump_goes_on_when_the_order_of_its_key_stays(
    database: str, sql: Sql, tmp_path: Path, change: str
) -> None:
    keyed(sql, "id")
    with resting(PostgresSource(database, name="keys"), tmp_path) as running:
        sql(BESIDE[change])
        go_on(running)
        until(running.dumped, "the copy")
        copy = copy_of(running.state)
        assert (copy.rows_read, copy.rows_voided) == (8, 0)
    assert running.error is None


@req("A-11", "H08")
def test_bounds_of_an_older_headrace_are_gone_on_from(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    keyed(sql, "id")
    source = PostgresSource(database, name="keys")
    with resting(source, tmp_path) as running:
        kept = copy_of(running.state).key_order
        assert kept
    # As a state that was written before the order was kept in it.
    with closing(sqlite3.connect(tmp_path / "state.db")) as state:
        state.execute("UPDATE progress SET key_order = ''")
        state.commit()
    with at_work(source, tmp_path) as running:
        go_on(running)
        until(running.dumped, "the copy")
        copy = copy_of(running.state)
        assert (copy.rows_read, copy.key_order) == (8, kept)
    assert running.error is None


@req("A-11", "P33")
@pytest.mark.debian_postgres
def test_no_row_is_left_out_when_the_collation_changes_between_two_chunks(
    debian_server: DebianPostgres, tmp_path: Path
) -> None:
    database = debian_server.create_database("changed_keys")
    try:
        with psycopg.connect(database, autocommit=True) as admin:
            admin.execute('CREATE TABLE t (k text COLLATE "en-x-icu" PRIMARY KEY, n int)')
            admin.execute("INSERT INTO t SELECT x, ascii(x) FROM unnest('{a,B,c,D,e,F}'::text[]) x")
            with resting(PostgresSource(database, name="changed_keys"), tmp_path) as running:
                admin.execute('ALTER TABLE t ALTER k TYPE text COLLATE "C"')
                go_on(running)
                until(running.dumped, "the copy")
                assert running.content(PUBLIC_T) == rows_of(database, "t")
            assert running.error is None
    finally:
        debian_server.drop_database("changed_keys")


@req("A-11", "P33")
def test_a_table_that_loses_its_key_between_two_chunks_is_read_whole(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    keyed(sql, "id")
    sql("ALTER TABLE t REPLICA IDENTITY FULL")
    with resting(PostgresSource(database, name="keys"), tmp_path) as running:
        sql("ALTER TABLE t DROP CONSTRAINT t_pkey", "INSERT INTO t VALUES (1, 1, 'twin')")
        go_on(running)
        until(running.dumped, "the copy")
        assert rows_behind_the_last_truncate(running) == rows_of(database, "t")
    assert running.error is None


@req("A-11", "P33")
def test_a_table_that_gets_a_key_before_it_is_read_whole_is_read_in_chunks(
    database: str, sql: Sql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed(sql, "id")
    sql("ALTER TABLE t REPLICA IDENTITY FULL", "ALTER TABLE t DROP CONSTRAINT t_pkey")
    read_table = PostgresChunkReader.read_table

    def late(self: PostgresChunkReader, table: TableId) -> TableDump:
        monkeypatch.undo()
        sql("ALTER TABLE t ADD PRIMARY KEY (id)")
        dump = read_table(self, table)
        # Its snapshot does not see what the log has before the window ends.
        sql("UPDATE t SET name = 'unseen' WHERE id = 3", "DELETE FROM t WHERE id = 5")
        return dump

    monkeypatch.setattr(PostgresChunkReader, "read_table", late)
    with at_work(PostgresSource(database, name="keys"), tmp_path, dump=AT_ONCE) as running:
        running.judged = False
        until(running.dumped, "the copy")
        assert running.content(PUBLIC_T) == rows_of(database, "t")
    assert running.error is None


def rows_behind_the_last_truncate(running: AtWork) -> Counter[tuple[object, ...]]:
    """Return what the log amounts to from where it emptied the table on, which has no key there."""
    held: Counter[tuple[object, ...]] = Counter()
    for block in ChangeLogReader(running.folder / "changelog").blocks(0):
        if any(event.kind is SystemKind.TRUNCATE for event in block.system):
            held.clear()
        for body in block.bodies:
            for row in body.batch.to_pylist():
                values = tuple(value for name, value in row.items() if not name.startswith("_"))
                held[values] += -1 if row["_op"].startswith("-") else 1
    return +held


@req("A-11", "P33")
@pytest.mark.parametrize("renamed", LABELS)
def test_labels_of_a_key_may_be_renamed_between_two_chunks(
    database: str, sql: Sql, tmp_path: Path, renamed: str
) -> None:
    sql("CREATE TYPE kind AS ENUM ('k1', 'k2', 'k3', 'k4', 'k5', 'k6', 'k7', 'k8')")
    sql("CREATE TABLE t (k kind PRIMARY KEY, v text)")
    sql("INSERT INTO t SELECT k, k::text FROM unnest(enum_range(NULL::kind)) k")
    source = PostgresSource(database, ["public.t"], name="keys")
    with resting(source, tmp_path) as running:
        sql(*(f"ALTER TYPE kind RENAME VALUE {one}" for one in LABELS[renamed]))
        go_on(running)
        until(lambda: running.holds(PUBLIC_T, rows_of(database, "t")), "the table as it is")
        newest = running.state.copies
        until(lambda: newest()[PUBLIC_T].progress.state == "done", "the copy")
        assert running.holds(PUBLIC_T, rows_of(database, "t"))
    assert running.error is None
