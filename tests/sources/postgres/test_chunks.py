"""Chunk reads against a real server: order, bounds, snapshots, locks, shape changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from headrace.errors import ConfigError, SourceError, SourceUnavailable
from headrace.model.schema import KeyCheck, TableId
from headrace.model.snapshot import NO, YES
from headrace.sources.base import Severity
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.catalog import TypeCache
from headrace.sources.postgres.chunks import PostgresChunkReader
from headrace.sources.postgres.connection import Session
from headrace.sources.postgres.copy_stream import copy_out
from headrace.sources.postgres.digest import SourceView
from tests.fixtures_postgres import Sql, name_of
from tests.requirements import req
from tests.sources.postgres.chunk_walk import T, walk
from tests.sources.postgres.support import opened

pytestmark = pytest.mark.postgres


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
    assert reader.upper_bound(T).key == ("11", "1000")


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
    until = reader.upper_bound(T).key
    assert until is not None
    whole = reader.read(T, None, until, 100)
    single = sum(chunk.num_rows for chunk in walk(reader, 1))
    assert whole.rows.num_rows == single >= 1
    keys = reader.render_keys(whole.schema, whole.rows)
    again = reader.read_keys(T, keys)
    assert again.rows.num_rows == whole.rows.num_rows
    for key in keys:
        assert reader.read_keys(T, [key]).rows.num_rows == 1


@req("P35")
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


def test_names_that_two_columns_exchange_do_not_mix_up_the_key(
    sql: Sql, reader: PostgresChunkReader
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, n int)",
        "INSERT INTO t SELECT i, 9 - i FROM generate_series(1, 8) i",
    )
    before = reader.read(T, None, ("8",), 2)
    assert before.last_key == ("2",)
    sql(
        "ALTER TABLE t RENAME n TO other",
        "ALTER TABLE t RENAME id TO n",
        "ALTER TABLE t RENAME other TO id",
    )
    after = reader.read(T, before.last_key, ("8",), 2)
    assert after.rows.column("n").to_pylist() == [3, 4]
    assert after.key_order == before.key_order


@req("A-11")
@pytest.mark.parametrize(
    "table",
    [
        '(n int, k text COLLATE "C", id int, PRIMARY KEY (k, id)) PARTITION BY LIST (k)',
        "(id int PRIMARY KEY)",
        "(id int)",
    ],
)
def test_a_view_names_the_order_of_a_key_as_chunks_do(
    database: str, sql: Sql, reader: PostgresChunkReader, table: str
) -> None:
    sql(f"CREATE TABLE t {table}")
    has_key = "KEY" in table
    with SourceView(PostgresSource(database).settings, [T]) as view:
        assert view.key_order(T) == (reader.upper_bound(T).key_order if has_key else "")
        assert bool(view.key_order(T)) is has_key


def test_an_empty_table_has_no_upper_bound(sql: Sql, reader: PostgresChunkReader) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    assert reader.upper_bound(T).key is None
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
            session: Session, statement: str, *parameters: str | None, **more: Any
        ) -> object:
            self.statements.append(" ".join(statement.split()))
            if statement == "COMMIT":
                self.look()
            return original(session, statement, *parameters, **more)

        def copying(session: Session, statement: str, *given: Any) -> Iterator[bytearray]:
            if not session.encrypted:
                # Else it goes through `result` like any other.
                self.statements.append(" ".join(statement.split()))
            return copy_out(session, statement, *given)

        monkeypatch.setattr(Session, "result", result)
        monkeypatch.setattr("headrace.sources.postgres.chunks.copy_out", copying)

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


def before_next_copy(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Act once, between a chunk's description and its select."""
    acts = [act]

    def acting(session: Session, statement: str, *given: Any) -> Iterator[bytearray]:
        while acts:
            acts.pop()()
        return copy_out(session, statement, *given)

    monkeypatch.setattr("headrace.sources.postgres.chunks.copy_out", acting)


def test_a_table_rewritten_between_snapshot_and_select_is_read_again(
    database: str, sql: Sql, reader: PostgresChunkReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ALTER TABLE … TYPE is not MVCC-safe: to the older snapshot the new heap looks empty."""
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, n int)",
        "INSERT INTO t SELECT g, g FROM generate_series(1, 5) g",
    )
    before_next_copy(monkeypatch, lambda: sql("ALTER TABLE t ALTER n TYPE bigint"))
    chunk = reader.read(T, None, ("9",), 10)
    assert chunk.rows.num_rows == 5
    assert chunk.schema.column("n").type == pa.int64()


def test_a_column_dropped_between_description_and_select_is_read_again(
    database: str, sql: Sql, reader: PostgresChunkReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 1)")
    before_next_copy(monkeypatch, lambda: sql("ALTER TABLE t DROP n"))
    assert reader.read(T, None, ("9",), 10).schema.names == ["id"]


@req("P33", "N22")
@pytest.mark.parametrize("how", ["chunk", "keys"])
@pytest.mark.parametrize(
    ("changes", "row"),
    [
        (("DROP n, ADD n text DEFAULT 'other'",), {"id": 1, "m": 3, "n": "other"}),
        (("DROP n, ADD n real DEFAULT 1.5",), {"id": 1, "m": 3, "n": 1.5}),
        (("DROP n, ADD n int DEFAULT 99",), {"id": 1, "m": 3, "n": 99}),
        (("RENAME n TO x", "RENAME m TO n", "RENAME x TO m"), {"id": 1, "m": 2, "n": 3}),
    ],
    ids=["of another width", "of the same width", "of the same type", "names exchanged"],
)
def test_columns_that_are_others_between_description_and_select_are_read_again(
    sql: Sql, reader: PostgresChunkReader, monkeypatch: pytest.MonkeyPatch,
    how: str, changes: tuple[str, ...], row: dict[str, Any],
) -> None:  # fmt: skip
    """None of it writes the heap anew, and a select finds under a name whatever has it by then."""
    sql(
        'CREATE TABLE "T t" (id int PRIMARY KEY, n int, m int)',
        'INSERT INTO "T t" VALUES (1, 2, 3)',
    )
    table = TableId("public", "T t")
    numbers = reader.describe(table).numbers
    altered = [f'ALTER TABLE "T t" {change}' for change in changes]
    before_next_copy(monkeypatch, lambda: sql(*altered))
    chunk = (
        reader.read(table, None, ("9",), 10)
        if how == "chunk"
        else reader.read_keys(table, [("1",)])
    )
    assert chunk.rows.to_pylist() == [row]
    assert chunk.schema == reader.describe(table)
    assert chunk.schema.numbers == reader.describe(table).numbers != numbers


def test_a_chunk_ends_where_its_bytes_do_and_the_next_asks_for_fewer_rows(
    database: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT g, repeat('x', CASE WHEN g <= 20 THEN 100000 ELSE 10 END)"
        " FROM generate_series(1, 500) g",
    )
    settings = replace(PostgresSource(database).settings, chunk_bytes=300_000)
    reader = PostgresChunkReader(settings, TypeCache())
    spy = Spy(database, monkeypatch)
    first = reader.read(T, None, ("500",), 500)
    assert first.cut
    assert first.rows.num_rows == 3
    assert first.last_key == ("3",)
    second = reader.read(T, first.last_key, ("500",), 500)
    assert second.cut
    assert [s for s in spy.statements if s.startswith("COPY")][1].count(" LIMIT 2)") == 1
    rows = pa.Table.from_batches(walk(reader, 400))
    assert rows.column("id").to_pylist() == list(range(1, 501))
    assert not reader.read(T, ("400",), ("500",), 500).cut
    reader.close()


def test_a_row_larger_than_a_chunk_is_a_chunk_of_its_own(database: str, sql: Sql) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT g, repeat('x', 50000) FROM generate_series(1, 4) g",
    )
    settings = replace(PostgresSource(database).settings, chunk_bytes=1_000)
    reader = PostgresChunkReader(settings, TypeCache())
    assert [chunk.num_rows for chunk in walk(reader, 3)] == [1, 1, 1, 1, 0]
    reader.close()


def anonymous_kib() -> int:
    """Return this process's anonymous resident memory."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0])


def test_a_whole_table_is_read_under_one_snapshot_in_bounded_memory(
    database: str, sql: Sql, reader: PostgresChunkReader
) -> None:
    sql(
        "CREATE TABLE t (a int, b text)",
        "INSERT INTO t SELECT g, repeat('x', 20000) FROM generate_series(1, 10000) g",
    )
    dump = reader.read_table(T)
    sql("DELETE FROM t WHERE a % 2 = 0", "INSERT INTO t VALUES (0, 'late')")
    rows, largest, before = 0, 0, anonymous_kib()
    grown = 0
    for batch in dump.batches:
        rows += batch.num_rows
        largest = max(largest, batch.nbytes)
        grown = max(grown, anonymous_kib() - before)
    assert rows == 10_000
    assert largest < 5 << 20
    assert grown < 64 << 10, f"{grown} KiB for a table of 200 MB"
    assert dump.schema.key_check is KeyCheck.NONE
    assert sum(b.num_rows for b in reader.read_table(T).batches) == 5_001


def test_a_dump_that_nobody_finished_does_not_hold_the_next_snapshot_back(
    sql: Sql, reader: PostgresChunkReader
) -> None:
    sql("CREATE TABLE t (a int)", "INSERT INTO t SELECT generate_series(1, 2000)")
    dump = reader.read_table(T)
    next(iter(dump.batches))
    sql("INSERT INTO t VALUES (0)")
    assert sum(b.num_rows for b in reader.read_table(T).batches) == 2001


def test_a_cancelled_read_is_tried_again_by_the_caller(
    database: str, sql: Sql, reader: PostgresChunkReader
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    name = name_of(database)
    sql(f"ALTER DATABASE {name} SET lock_timeout = '50ms'")
    with psycopg.connect(database) as other:
        other.execute("LOCK TABLE t")
        with pytest.raises(SourceUnavailable, match="55P03"):
            reader.read(T, None, ("9",), 10)
    assert reader.read(T, None, ("9",), 10).rows.num_rows == 1


def test_a_table_without_key_has_no_chunks(sql: Sql, reader: PostgresChunkReader) -> None:
    sql("CREATE TABLE t (a int)")
    with pytest.raises(ConfigError, match="no key"):
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


def test_a_chunk_and_verify_look_at_the_columns_that_an_adopted_publication_has(
    database: str, sql: Sql
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, hidden text, v text)",
        "INSERT INTO t VALUES (1, 'secret', 'a')",
        "CREATE PUBLICATION chosen FOR TABLE t (id, v)",
    )
    source = PostgresSource(database, publication="chosen")
    reader = source.chunks()
    assert reader.read(T, None, ("9",), 10).rows.to_pylist() == [{"id": 1, "v": "a"}]
    reader.close()
    with SourceView(source.settings, [T]) as view:
        assert view.schemas[T].names == ["id", "v"]
        assert sum(rows for _, rows, _ in view.range_sums(T)) == 1


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


def test_a_condition_limits_bound_and_chunks_and_cannot_end_the_statement(
    sql: Sql, reader: PostgresChunkReader
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE TABLE other (id int)",
        "INSERT INTO t SELECT g, CASE WHEN g % 3 = 0 THEN 'x' END FROM generate_series(1, 20) g")  # fmt: skip
    assert reader.upper_bound(T, "v = 'x' -- those").key == ("18",)
    assert reader.upper_bound(T, "false").key is None
    chunk = reader.read(T, ("3",), ("18",), 3, "v = 'x' OR id = 4")
    assert chunk.rows.column("id").to_pylist() == [4, 6, 9]
    for escape in (
        "true) TO STDOUT; DROP TABLE other; COPY (SELECT 1",
        "true); DROP TABLE other; SELECT (1",
        "true)) TO STDOUT (FORMAT binary) --",
        "true ORDER BY 1) TO PROGRAM 'true' --",
    ):
        with pytest.raises(SourceError):
            reader.read(T, None, ("18",), 3, escape)
    with pytest.raises(SourceError):
        reader.upper_bound(T, "true); DROP TABLE other; SELECT (1")
    assert reader.describe(TableId("public", "other")).names == ["id"]


BIG = (
    "CREATE TABLE t (a int, b int, v text, PRIMARY KEY (a, b))",
    "INSERT INTO t SELECT g % 9, g, 'x' FROM generate_series(1, 150000) g",
    "ANALYZE t",
    "CREATE TABLE small (id int PRIMARY KEY)",
    "INSERT INTO small SELECT generate_series(1, 5000)",
    "ANALYZE small",
)


@req("P15")
def test_a_plan_without_a_range_of_the_key_is_told_by_preflight_and_at_the_start_of_a_dump(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    sql(*BIG)
    source = PostgresSource(database)
    assert source.preflight() == []
    reader = source.chunks()
    reader.upper_bound(T)
    assert not caplog.records
    reader.close()

    name = name_of(database)
    for kind in ("indexscan", "indexonlyscan", "bitmapscan"):
        sql(f"ALTER DATABASE {name} SET enable_{kind} = off")
    (finding,) = source.preflight()
    assert finding.name == "no-range-scan"
    assert finding.severity is Severity.WARNING
    assert finding.table == "public.t"
    assert "about 150000 rows (Seq Scan and Sort)" in finding.description
    assert 'CREATE INDEX CONCURRENTLY ON "public"."t" ("a", "b")' in finding.suggestion
    reader = source.chunks()
    assert reader.upper_bound(T).key == ("8", "149993")
    reader.read(T, None, ("0", "100"), 3)
    (told,) = caplog.records
    assert "Each chunk of public.t would read about 150000 rows" in told.getMessage()
    reader.close()
