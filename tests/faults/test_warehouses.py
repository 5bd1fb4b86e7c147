"""Warehouses that are not ours to write, changed by others, locked, or full: named errors, and nothing is lost."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.errors import (
    ConfigError,
    HeadraceError,
    IncompatibleSchemaChange,
    TargetConflict,
    TargetUnwritable,
)
from headrace.fold import fold
from headrace.lake.sql.duckdb_file import DuckdbWarehouse
from headrace.lake.sql.postgres import PostgresWarehouse
from headrace.lake.sql.session import told
from headrace.lake.sql.tables import WarehouseTables
from headrace.model.schema import KeyCheck, TableId, TableSchema
from headrace.spark import at_work
from headrace.spark.apply import Applier
from headrace.spark.targets.base import TableBatch
from headrace.spark.targets.duckdb import check_master
from headrace.testing.notation import change_batch, parse_history, table_of
from headrace.testing.postgres import DebianPostgres, EmbeddedPostgres
from tests.faults.faulty import named
from tests.fixtures_binlog import mariadb_server
from tests.fixtures_postgres import LOGIN, Sql, as_role, debian_server, name_of
from tests.lake.sql.warehouses import apply, content, counted
from tests.requirements import req
from tests.spark.conftest import spark
from tests.spark.folded import Dying, GivenFolded, apply_one
from tests.spark.subjects import IN_SQL, Subject, made
from tests.spark.test_targets_in_time import Bench

__all__ = ["debian_server", "mariadb_server", "spark"]

pytestmark = pytest.mark.postgres

TABLE = table_of(3)


def rows_of(history: str, schema: TableSchema = TABLE, scn: int = 1) -> pa.Table:
    return fold(schema, [change_batch(schema, parse_history(history, scn).rows)])


def refused(warehouse: DuckdbWarehouse | PostgresWarehouse) -> HeadraceError:
    """Return the error that a batch ends with."""
    with pytest.raises(HeadraceError) as caught, told(warehouse, TABLE.table):
        apply(warehouse, TABLE, rows_of("+I(7,secret,value)"), 7)
    assert "secret" not in str(caught.value)
    return caught.value


@pytest.fixture(params=IN_SQL)
def bench(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(made(request.param, request, spark, tmp_path), tmp_path)
    bench.log.write(TABLE, "+I(1,a,b)")
    bench.run(bench.log.complete(TABLE))
    yield bench
    bench.log.writer.close()


def by_hand(subject: Subject, statement: str) -> None:
    """Change the warehouse as somebody else would."""
    with subject.warehouse.opened() as session, session.transaction():
        session.run(statement)


def test_a_wrong_password_is_named_and_never_shown(debian_server: DebianPostgres) -> None:
    url = debian_server.create_database("warehouse_password")
    wrong = url.replace(DebianPostgres.PASSWORD, "not-the-password")
    assert wrong != url
    error = refused(PostgresWarehouse(wrong))
    named(error, TargetUnwritable, "role or password")
    assert "not-the-password" not in str(error)
    assert "not-the-password" not in repr(PostgresWarehouse(wrong))


def test_a_limit_of_the_role_ends_no_merge(database: str, sql: Sql) -> None:
    query = (
        "SELECT name FROM pg_settings WHERE name IN ('statement_timeout', 'transaction_timeout')"
    )
    with psycopg.connect(database) as connection:
        # The second came with PostgreSQL 17.
        limits = [name for (name,) in connection.execute(query)]
    sql(*(f"ALTER DATABASE {name_of(database)} SET {name} = '5s'" for name in limits))
    with PostgresWarehouse(database).opened() as session:
        assert [session.rows(f"SHOW {name}") for name in limits] == [[("0",)]] * len(limits)


@pytest.mark.parametrize(("asked", "patience_ms"), [("", 60_000), ("tcp_user_timeout=7000", 7_000)])
def test_a_server_that_is_gone_without_a_word_is_missed_soon(
    debian_server: DebianPostgres, asked: str, patience_ms: int
) -> None:
    """A merge sends nothing while the server works: the system would wait for it for two hours."""
    url = debian_server.create_database(f"warehouse_gone_{patience_ms}")
    warehouse = PostgresWarehouse(f"{url}{'&' if '?' in url else '?'}{asked}".rstrip("&?"))
    with closing(warehouse.connect()) as session:
        with socket.socket(fileno=os.dup(session._connection.fileno())) as line:
            assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
            assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == patience_ms
        assert session.is_alive()


def test_debians_server_takes_the_statements_too(debian_server: DebianPostgres) -> None:
    warehouse = PostgresWarehouse(debian_server.create_database("warehouse_takes"))
    apply(warehouse, TABLE, rows_of("+I(1,a,b) +I(2,c,d)"), 1)
    apply(warehouse, TABLE, rows_of("=U(1,x,?) | -D(2)", scn=2), 3)
    assert counted(content(warehouse, TABLE)) == {(1, "x", "b"): 1}


def test_a_role_that_may_only_read_is_named(database: str, sql: Sql) -> None:
    apply(PostgresWarehouse(database), TABLE, rows_of("+I(1,a,b)"), 1)
    sql(
        f"CREATE ROLE only_reads {LOGIN}",
        "GRANT USAGE ON SCHEMA headrace, public TO only_reads",
        "GRANT SELECT ON ALL TABLES IN SCHEMA headrace, public TO only_reads",
    )
    try:
        named(refused(PostgresWarehouse(as_role(database, "only_reads"))), TargetUnwritable, "role")
    finally:
        sql("DROP OWNED BY only_reads", "DROP ROLE only_reads")
    assert counted(content(PostgresWarehouse(database), TABLE)) == {(1, "a", "b"): 1}


def test_a_server_that_is_not_there_is_named() -> None:
    error = refused(PostgresWarehouse("postgresql://user:hidden@localhost:1/none"))
    named(error, TargetUnwritable, "cannot be reached")
    assert "hidden" not in str(error)


def test_rows_that_a_crash_of_the_server_took_are_missed_and_staged_again() -> None:
    """Staging tables are unlogged: a server that comes back, or its standby, has them empty."""
    with EmbeddedPostgres() as server:
        warehouse = PostgresWarehouse(server.create_database("warehouse_crash"))
        apply(warehouse, TABLE, rows_of("+I(1,a,b)"), 1)
        tables = WarehouseTables(warehouse, "test")
        with warehouse.opened() as session:
            batch = rows_of("+I(2,c,d) | -D(1)", scn=2)
            staged = tables.stage(session, TABLE, batch, "headrace.stage_of_a_task")
        server.restart("immediate")
        with warehouse.opened() as session:
            with (
                pytest.raises(TargetUnwritable, match=r"public\.t .* lost the rows"),
                session.transaction(),
            ):
                tables.apply(session, TABLE, staged, 3, complete=True)
            entry = tables.entry(session, TABLE.table)
        assert entry is not None
        assert entry.applied_scn == 1
        apply(warehouse, TABLE, batch, 3)
        assert counted(content(warehouse, TABLE)) == {(2, "c", "d"): 1}


@pytest.mark.parametrize("what", ["folder", "text"])
def test_a_file_that_is_no_database_is_named(tmp_path: Path, what: str) -> None:
    path = tmp_path / "w.duckdb"
    path.mkdir() if what == "folder" else path.write_text("something else" * 1_000)
    named(refused(DuckdbWarehouse(path)), TargetUnwritable, "public.t")


@req("C62")
def test_a_file_that_somebody_reads_is_waited_for_and_then_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.lake.sql.duckdb_file._LOCK_WAIT_S", 0.2)
    warehouse = DuckdbWarehouse(tmp_path / "w.duckdb")
    apply(warehouse, TABLE, rows_of("+I(1,a,b)"), 1)
    program = (
        "import sys, duckdb\n"
        f"held = duckdb.connect({str(warehouse.path)!r}, read_only=True)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reader:
        assert reader.stdout
        assert reader.stdin
        assert reader.stdout.readline() == b"held\n"
        named(refused(warehouse), TargetUnwritable, "another process")
        reader.stdin.close()
    apply(warehouse, TABLE, rows_of("+I(2,c,d)"), 2)
    assert counted(content(warehouse, TABLE)) == {(1, "a", "b"): 1, (2, "c", "d"): 1}


@req("C62")
def test_a_file_that_may_not_grow_keeps_what_it_has(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk."""
    warehouse = DuckdbWarehouse(tmp_path / "w.duckdb")
    apply(warehouse, TABLE, rows_of("+I(1,a,b)"), 1)
    wide = rows_of(
        " ".join(f"+I({key},{key * 7919:x},{'y' * 500}{key})" for key in range(2, 4_000))
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    try:
        with pytest.raises(HeadraceError) as caught, told(warehouse, TABLE.table):
            apply(warehouse, TABLE, wide, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    named(caught.value, TargetUnwritable, "public.t")
    assert counted(content(warehouse, TABLE)) == {(1, "a", "b"): 1}
    apply(warehouse, TABLE, wide, 2)
    assert content(warehouse, TABLE).num_rows == 3_999


def test_the_file_may_have_the_name_of_a_schema(tmp_path: Path) -> None:
    for name in ("public.duckdb", "headrace.duckdb"):
        warehouse = DuckdbWarehouse(tmp_path / name)
        apply(warehouse, TABLE, rows_of("+I(1,a,b)"), 1)
        assert content(warehouse, TABLE).num_rows == 1


@req("C-17")
@pytest.mark.parametrize(
    ("table", "names", "why"),
    [
        (TableId("public", "t"), ("Note", "note"), "case alone"),
        (TableId("temp", "t"), ("a", "b"), "warehouse's own"),
    ],
)
def test_names_that_the_file_would_mix_up_are_refused(
    tmp_path: Path, table: TableId, names: tuple[str, str], why: str
) -> None:
    columns = [TABLE.columns[0]] + [
        type(column)(name, column.type, column.source_type)
        for name, column in zip(names, TABLE.columns[1:], strict=True)
    ]
    schema = TableSchema(table, tuple(columns), TABLE.key, TABLE.key_check)
    with pytest.raises(IncompatibleSchemaChange, match=why):
        apply(DuckdbWarehouse(tmp_path / "w.duckdb"), schema, rows_of("+I(1,a,b)", schema), 1)


@req("C-17")
def test_a_name_that_the_server_would_cut_off_is_refused(database: str) -> None:
    warehouse = PostgresWarehouse(database, schema_prefix="x" * 40)
    table = table_of(3)
    long = TableSchema(TableId("s" * 30, "t"), table.columns, table.key, table.key_check)
    with pytest.raises(IncompatibleSchemaChange, match="longer than"):
        apply(warehouse, long, rows_of("+I(1,a,b)", long), 1)


@pytest.mark.parametrize("master", ["spark://host:7077", "local-cluster[2,1,1024]", "yarn"])
def test_a_file_takes_a_spark_on_this_machine(master: str) -> None:
    with pytest.raises(ConfigError, match=r"spark\.master"):
        check_master(master)
    check_master("local[2]")


@req("C62")
@pytest.mark.spark
def test_a_table_that_is_dropped_by_hand_waits_and_is_copied_again(bench: Bench) -> None:
    by_hand(bench.subject, 'DROP TABLE "public"."t"')
    end = bench.log.write(TABLE, "=U(1,x,?)")
    (error,) = bench.run(end).failing
    named(error, TargetConflict, "public.t")
    assert "gone" in error.message
    # As the next step says.
    by_hand(bench.subject, "DELETE FROM headrace.ledger")
    bench.log.write(TABLE, "+R(1,x,b)")
    bench.run(bench.log.complete(TABLE))
    assert bench.subject.content(TABLE) == {(1, "x", "b"): 1}


@req("C62")
@pytest.mark.spark
@pytest.mark.parametrize(
    ("change", "undo"),
    [
        ('ADD COLUMN "mine" integer', 'DROP COLUMN "mine"'),
        pytest.param(
            'RENAME COLUMN "c1" TO "other"',
            'RENAME COLUMN "other" TO "c1"',
            marks=pytest.mark.long,
        ),
        pytest.param('DROP COLUMN "c2"', 'ADD COLUMN "c2" text', marks=pytest.mark.long),
    ],
)
def test_a_table_whose_columns_are_changed_by_hand_waits(
    bench: Bench, change: str, undo: str
) -> None:
    good = table_of(2, name="good")
    by_hand(bench.subject, f'ALTER TABLE "public"."t" {change}')
    bench.log.write(good, "+I(1,a)")
    end = bench.log.write(TABLE, "+I(2,c,d)")
    (error,) = bench.run(end).failing
    named(error, TargetConflict, "public.t")
    assert bench.subject.content(good) == {(1, "a"): 1}
    by_hand(bench.subject, f'ALTER TABLE "public"."t" {undo}')
    bench.run(bench.log.write(TABLE, "+I(3,e,f)"))
    assert {key for key, *_ in bench.subject.content(TABLE)} == {1, 2, 3}


@req("C62")
@pytest.mark.spark
def test_a_table_that_another_has_made_is_left_alone(bench: Bench) -> None:
    other = table_of(2, name="other")
    by_hand(bench.subject, 'CREATE TABLE "public"."other" (precious text)')
    bench.log.write(other, "+I(1,a)")
    (error,) = bench.run(bench.log.complete(other)).failing
    named(error, TargetConflict, "public.other", "did not make")
    by_hand(bench.subject, 'DROP TABLE "public"."other"')
    bench.run(bench.log.write(other, "+I(2,b)"))
    assert bench.subject.content(other) == {(1, "a"): 1, (2, "b"): 1}


@req("C44", "C58")
@pytest.mark.spark
def test_a_position_that_somebody_else_moved_on_in_mid_batch_stops_the_table(bench: Bench) -> None:
    """Two appliers at one table: the second finds the ledger further than its batch."""
    target = bench.subject.make()
    end = bench.log.write(TABLE, "+I(2,c,d)")
    bench.run(end)
    folded = rows_of("+I(9,z,z)")
    given = GivenFolded(target.session(TABLE.table), folded)
    with pytest.raises(TargetConflict, match="at SCN"):
        apply_one(target, TABLE, given, end - 1, complete=True)
    assert bench.subject.content(TABLE) == {(1, "a", "b"): 1, (2, "c", "d"): 1}


@req("C61")
@pytest.mark.spark
@pytest.mark.parametrize("bench", ["postgres"], indirect=True)
def test_a_connection_that_the_server_ended_is_made_anew(bench: Bench, database: str) -> None:
    target = bench.subject.target
    assert target.state(TABLE.table) is not None
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'headrace' AND datname = current_database()"
        )
    assert target.state(TABLE.table) is not None


@req("C12", "C43")
@pytest.mark.spark
def test_a_task_that_dies_after_writing_some_tables_leaves_nothing_of_them(bench: Bench) -> None:
    """The worker ends while the second table is read, in the transaction that has merged the first."""
    target, other = bench.subject.make(), table_of(3, name="other")
    session = target.session(TABLE.table)
    target.evolve(other)
    good = GivenFolded(session, rows_of("+I(5,e,f)"))
    batches = [
        (TABLE, good),
        (other, Dying(session, rows_of("+I(6,g,h)", other))),
    ]
    before = bench.log.scn
    outcomes = target.apply(
        [TableBatch(schema, given, before + 10, complete=True) for schema, given in batches]
    )
    # The one that kills its task fails alone, the other gets through on its own.
    assert isinstance(outcomes[1], HeadraceError)
    assert not isinstance(outcomes[0], HeadraceError)
    assert bench.subject.content(TABLE) == {(1, "a", "b"): 1, (5, "e", "f"): 1}
    assert not bench.subject.content(other)


_REFUSE = "CREATE FUNCTION refuse() RETURNS {} LANGUAGE plpgsql AS 'BEGIN RAISE ''not now''; END'"
REFUSALS = {
    "load": (
        _REFUSE.format("event_trigger"),
        "CREATE EVENT TRIGGER refused ON ddl_command_end EXECUTE FUNCTION refuse()",
        "DROP EVENT TRIGGER refused",
    ),
    "merge": (
        _REFUSE.format("trigger"),
        'CREATE TRIGGER refused BEFORE INSERT ON "bag" FOR EACH ROW EXECUTE FUNCTION refuse()',
        'DROP TRIGGER refused ON "bag"',
    ),
    "commit": (
        _REFUSE.format("trigger"),
        (
            "CREATE CONSTRAINT TRIGGER refused AFTER UPDATE ON headrace.ledger "
            "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()"
        ),
        "DROP TRIGGER refused ON headrace.ledger",
    ),
}
"""What a server refuses in three steps of a batch, and how it is taken back."""


@req("C62", "C-12", "C-13")
@pytest.mark.spark
@pytest.mark.parametrize("bench", ["postgres"], indirect=True)
@pytest.mark.parametrize("step", REFUSALS)
def test_a_load_a_merge_or_a_commit_that_the_server_refuses_is_tried_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(at_work, "_RETRY_FROM_S", 0.0)
    bag = table_of(2, check=KeyCheck.NONE, name="bag")
    bench.log.write(bag, "+I(1,a) +I(1,a)")
    bench.run(bench.log.complete(bag))
    applier = Applier(bench.options, bench.subject.make())
    start = applier.begin().from_scn
    function, refuse, allow = REFUSALS[step]
    by_hand(bench.subject, function)
    by_hand(bench.subject, refuse)
    bench.log.write(TABLE, "=U(1,x,?)")
    middle = bench.log.write(bag, "-D(1,a) +I(2,b)")
    applier.process(start, middle)
    applier.retry(middle)
    # A merge that is refused is one table's; the other's batch gets through on its own.
    refused = {"public.bag"} if step == "merge" else {"public.bag", "public.t"}
    states = applier.status.tables
    assert {name for name, table in states.items() if table.state == "failing"} == refused
    assert bench.subject.content(bag) == {(1, "a"): 2}
    by_hand(bench.subject, allow)
    bench.log.write(TABLE, "+I(3,e,f)")
    end = bench.log.write(bag, "+I(2,b)")
    applier.process(middle, end)
    applier.close()
    assert not applier.failing
    assert bench.subject.content(bag) == {(1, "a"): 1, (2, "b"): 2}
    assert bench.subject.content(TABLE) == {(1, "x", "b"): 1, (3, "e", "f"): 1}
    with bench.subject.warehouse.opened() as session:
        query = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'headrace'"
        assert session.rows(query) == [("ledger",)]
