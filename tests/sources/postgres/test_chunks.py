"""Chunk reads against a real server: order, bounds, snapshots, locks, shape changes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from headrace.errors import ConfigError, SourceError, SourceUnavailable
from headrace.model.schema import KeyCheck, TableId
from headrace.model.snapshot import NO, YES
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.chunks import PostgresChunkReader
from headrace.sources.postgres.connection import Session
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.sources.postgres.support import opened

pytestmark = pytest.mark.postgres

T = TableId("public", "t")


@pytest.fixture
def reader(database: str) -> Iterator[PostgresChunkReader]:
    chunks = PostgresSource(database).chunks()
    yield chunks
    chunks.close()


def walk(reader: PostgresChunkReader, limit: int) -> list[pa.RecordBatch]:
    """Read the whole table by chunks."""
    until = reader.upper_bound(T)
    after: tuple[str, ...] | None = None
    chunks: list[pa.RecordBatch] = []
    assert until is not None
    while True:
        chunk = reader.read(T, after, until, limit)
        chunks.append(chunk.rows)
        if chunk.rows.num_rows < limit:
            return chunks
        after = chunk.last_key


@req("T3")
def test_the_database_alone_orders_and_compares_keys(sql: Sql, reader: PostgresChunkReader) -> None:
    # Neither the text nor the bytes of these keys sort as the numbers do; index order is not column order.
    sql(
        "CREATE TABLE t (n int, k numeric, PRIMARY KEY (k, n))",
        "INSERT INTO t SELECT n, k FROM unnest('{-10,-9,0.5,9,10,1e3}'::numeric[]) k,"
        " generate_series(9, 11) n",
    )
    rows = [(row["k"], row["n"]) for chunk in walk(reader, 4) for row in chunk.to_pylist()]
    assert rows == [(k, n) for k in ("-10", "-9", "0.5", "9", "10", "1000") for n in (9, 10, 11)]
    assert reader.describe(T).key == ("n", "k")
    assert reader.upper_bound(T) == ("11", "1000")


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        ("numeric", "'-1.5', '0', '0.10', '1e30', 'NaN', 'Infinity'"),
        ("double precision", "'-1e300', '-0', '0.1', '1e22', 'NaN', 'Infinity'"),
        ("real", "'0.1', '1e-45', '3.4e38'"),
        ("timestamptz", "'2024-01-01 00:00:00.000001+09', '1000-01-01', '0044-01-01 BC'"),
        ("date", "'0044-01-01 BC', '2024-02-29', '12024-01-01'"),
        ("uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"),
        ("bytea", "'\\x00', '\\xff00', ''"),
        ("boolean", "'t', 'f'"),
        ("char(4)", "'a', 'ab', ''"),
        ("interval", "'1 mon', '29 days', '-1 sec'"),
        ("text", "'', ' ', 'a\"b', 'a\\b', 'a,b', '{}', 'NULL', 'ä€😀', E'a\\nb'"),
        ("integer[]", "'{1,2}', '{}', '{NULL}'"),
        ("numeric(10,2)", "'-1.50', '100'"),
    ],
)
@req("T3")
def test_keys_of_every_orderable_type_walk_and_look_up_exactly(
    sql: Sql, reader: PostgresChunkReader, type_: str, values: str
) -> None:
    sql(
        f"CREATE TABLE t (k {type_} PRIMARY KEY, v int)",
        f"INSERT INTO t SELECT unnest(ARRAY[{values}]::{type_.partition('[')[0]}[]), 1"
        if "[" not in type_
        else f"INSERT INTO t SELECT k::{type_}, 1 FROM (VALUES ({values.replace(', ', '), (')})) x(k)",
    )
    until = reader.upper_bound(T)
    assert until is not None
    whole = reader.read(T, None, until, 100)
    single = sum(chunk.num_rows for chunk in walk(reader, 1))
    assert whole.rows.num_rows == single >= 1
    keys = reader.render_keys(whole.schema, whole.rows)
    again = reader.read_keys(T, keys)
    assert again.rows.num_rows == whole.rows.num_rows
    for key in keys:
        assert reader.read_keys(T, [key]).rows.num_rows == 1


def test_bounds_are_open_below_and_closed_above(sql: Sql, reader: PostgresChunkReader) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 10)")

    def ids(after: str | None, until: str, limit: int) -> list[int]:
        chunk = reader.read(T, None if after is None else (after,), (until,), limit)
        return [int(v) for v in chunk.rows.column("id").to_pylist()]

    assert ids(None, "3", 10) == [1, 2, 3]
    assert ids("3", "6", 10) == [4, 5, 6]
    assert ids("3", "10", 2) == [4, 5]
    assert ids("10", "10", 2) == []
    assert reader.read(T, ("10",), ("10",), 2).last_key is None


def test_an_empty_table_has_no_upper_bound(sql: Sql, reader: PostgresChunkReader) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    assert reader.upper_bound(T) is None
    assert reader.estimate_rows(T) == 0
    assert reader.read_keys(T, []).rows.num_rows == 0


def test_keys_that_do_not_exist_are_left_out_and_equal_ones_read_once(
    sql: Sql, reader: PostgresChunkReader
) -> None:
    sql(
        "CREATE TABLE t (a int, b text, PRIMARY KEY (a, b))",
        "INSERT INTO t VALUES (1, 'x'), (2, 'y')",
    )
    chunk = reader.read_keys(T, [("1", "x"), ("1", "x"), ("1", "y"), ("9", "z")])
    assert chunk.rows.to_pylist() == [{"a": 1, "b": "x"}]


def test_a_key_that_is_no_value_of_its_type_is_refused_without_being_shown(
    sql: Sql, reader: PostgresChunkReader
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with pytest.raises(ConfigError) as caught:
        reader.read_keys(T, [("secret",)])
    assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError, match="1 columns"):
        reader.read_keys(T, [("1", "2")])
    assert reader.snapshot().xmax > 0  # the connection still works


@req("T9")
def test_every_chunk_has_a_snapshot_of_its_own_that_matches_its_rows(
    database: str, sql: Sql, reader: PostgresChunkReader
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with psycopg.connect(database) as other:
        row = other.execute(
            "INSERT INTO t VALUES (2) RETURNING pg_current_xact_id()::text"
        ).fetchone()
        assert row is not None
        xid = np.array([int(row[0])], np.int64)
        before = reader.read(T, None, ("9",), 10)
        other.commit()
        after = reader.read(T, None, ("9",), 10)
    assert before.rows.num_rows == 1
    assert before.visibility.sees(xid, xid).tolist() == [NO]
    assert after.rows.num_rows == 2
    assert after.visibility.sees(xid, xid).tolist() == [YES]


class Spy:
    """Counts statements and looks at locks while a chunk transaction is still open."""

    def __init__(self, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: list[str] = []
        self.locks: set[tuple[str, str]] = set()
        self._database = database
        original = Session.result

        def result(
            session: Session, statement: str, *parameters: str | None, **more: float
        ) -> object:
            self.statements.append(" ".join(statement.split()))
            if statement == "COMMIT":
                self.look()
            return original(session, statement, *parameters, **more)

        monkeypatch.setattr(Session, "result", result)

    def look(self) -> None:
        with psycopg.connect(self._database) as connection:
            self.locks |= set(
                connection.execute(
                    "SELECT relation::regclass::text, mode FROM pg_locks "
                    "WHERE locktype = 'relation' AND pid <> pg_backend_pid() "
                    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
                ).fetchall()
            )


@req("N22")
def test_a_chunk_takes_no_lock_beyond_its_own_select_and_few_statements(
    database: str, sql: Sql, reader: PostgresChunkReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')")
    reader.read(T, None, ("9",), 10)
    spy = Spy(database, monkeypatch)
    reader.read(T, None, ("9",), 10)
    assert len(spy.statements) <= 8
    assert not any("LOCK" in s or "FOR UPDATE" in s or "FOR SHARE" in s for s in spy.statements)
    assert sum(" FROM ONLY " in s for s in spy.statements) == 1
    assert ("t", "AccessShareLock") in spy.locks
    assert {mode for _, mode in spy.locks} == {"AccessShareLock"}


def test_describing_a_table_reads_the_catalog_and_never_the_table(
    database: str, sql: Sql, reader: PostgresChunkReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    spy = Spy(database, monkeypatch)
    assert reader.describe(T).names == ["id", "v"]
    assert "t" not in {relation for relation, _ in spy.locks}


def test_a_table_rewritten_between_snapshot_and_select_is_read_again(
    database: str, sql: Sql, reader: PostgresChunkReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ALTER TABLE … TYPE is not MVCC-safe: to the older snapshot the new heap looks empty."""
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, n int)",
        "INSERT INTO t SELECT g, g FROM generate_series(1, 5) g",
    )
    original = Session.cells
    raced: list[str] = []

    def cells(
        session: Session, statement: str, *parameters: str | None
    ) -> list[list[bytes | None]]:
        if not raced:
            raced.append("now")
            sql("ALTER TABLE t ALTER n TYPE bigint")
        return original(session, statement, *parameters)

    monkeypatch.setattr(Session, "cells", cells)
    chunk = reader.read(T, None, ("9",), 10)
    assert chunk.rows.num_rows == 5
    assert chunk.schema.column("n").type == pa.int64()


def test_a_column_dropped_between_description_and_select_is_read_again(
    database: str, sql: Sql, reader: PostgresChunkReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 1)")
    original = Session.cells
    raced: list[str] = []

    def cells(
        session: Session, statement: str, *parameters: str | None
    ) -> list[list[bytes | None]]:
        if not raced:
            raced.append("now")
            sql("ALTER TABLE t DROP n")
        return original(session, statement, *parameters)

    monkeypatch.setattr(Session, "cells", cells)
    assert reader.read(T, None, ("9",), 10).schema.names == ["id"]


def test_a_whole_table_is_read_under_one_snapshot_in_bounded_batches(
    database: str, sql: Sql, reader: PostgresChunkReader
) -> None:
    sql(
        "CREATE TABLE t (a int, b text)",
        "INSERT INTO t SELECT g, repeat('x', 2000) FROM generate_series(1, 20000) g",
    )
    dump = reader.read_table(T)
    sql("DELETE FROM t WHERE a % 2 = 0", "INSERT INTO t VALUES (0, 'late')")
    batches = list(dump.batches)
    assert sum(b.num_rows for b in batches) == 20_000
    assert max(b.nbytes for b in batches) < 8 << 20
    assert dump.schema.key_check is KeyCheck.NONE
    later = reader.read_table(T)
    assert sum(b.num_rows for b in later.batches) == 10_001


def test_a_dump_that_nobody_finished_does_not_hold_the_next_snapshot_back(
    sql: Sql, reader: PostgresChunkReader
) -> None:
    sql("CREATE TABLE t (a int)", "INSERT INTO t SELECT generate_series(1, 2000)")
    dump = reader.read_table(T)
    next(iter(dump.batches))
    sql("INSERT INTO t VALUES (0)")
    assert sum(b.num_rows for b in reader.read_table(T).batches) == 2001


def test_inheriting_tables_are_not_read_through_their_parent(
    sql: Sql, reader: PostgresChunkReader
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TABLE child (PRIMARY KEY (id)) INHERITS (t)",
        "INSERT INTO t VALUES (1)",
        "INSERT INTO child VALUES (2)",
    )
    assert reader.upper_bound(T) == ("1",)
    assert reader.read(T, None, ("9",), 10).rows.num_rows == 1


def test_partitions_are_read_through_their_root(sql: Sql, reader: PostgresChunkReader) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (10) TO (20)",
        "INSERT INTO t SELECT generate_series(1, 19)",
        "ANALYZE t",
    )
    assert sum(chunk.num_rows for chunk in walk(reader, 4)) == 19
    assert reader.estimate_rows(T) == 19


def test_a_cancelled_read_is_tried_again_by_the_caller(
    database: str, sql: Sql, reader: PostgresChunkReader
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    name = database.partition("@/")[2].partition("?")[0]
    sql(f"ALTER DATABASE {name} SET lock_timeout = '50ms'")
    with psycopg.connect(database) as other:
        other.execute("LOCK TABLE t")
        with pytest.raises(SourceUnavailable, match="55P03"):
            reader.read(T, None, ("9",), 10)
    assert reader.read(T, None, ("9",), 10).rows.num_rows == 1


def test_a_table_without_key_has_no_chunks(sql: Sql, reader: PostgresChunkReader) -> None:
    sql("CREATE TABLE t (a int)")
    with pytest.raises(SourceError, match="no key"):
        reader.upper_bound(T)
    with pytest.raises(SourceError, match="does not exist"):
        reader.describe(TableId("public", "gone"))


def test_generated_columns_are_neither_logged_nor_read(
    database: str, sql: Sql, reader: PostgresChunkReader, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED)")
    with opened(database, tmp_path) as log:
        sql("INSERT INTO t VALUES (1)")
        assert log.collect().changes("t") == [("+I", 1)]
    assert reader.read(T, None, ("9",), 10).rows.to_pylist() == [{"id": 1}]


def test_a_migration_that_waits_behind_a_chunk_goes_on_when_it_is_read(
    database: str, sql: Sql, reader: PostgresChunkReader
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    reader.read(T, None, ("9",), 10)
    done = threading.Event()

    def migrate() -> None:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("ALTER TABLE t ADD v int")
        done.set()

    thread = threading.Thread(target=migrate)
    thread.start()
    assert done.wait(20), "the chunk reader holds a lock between chunks"
    thread.join()
