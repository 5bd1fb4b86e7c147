"""Preflight: each problem is found, all at once, with SQL that removes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headrace.errors import PreflightFailed
from headrace.sources.base import Finding, Severity
from headrace.sources.postgres import PostgresSource
from headrace.testing.postgres import EmbeddedPostgres
from headrace.testing.postgres_server import PostgresServer
from tests.fixtures_postgres import LOGIN, Sql, as_role, emitters
from tests.requirements import req
from tests.sources.postgres.support import DEADLINE_S
from tests.waiting import until

pytestmark = pytest.mark.postgres


def find(source: PostgresSource) -> dict[tuple[str, str], Finding]:
    found = source.preflight()
    assert all(f.name and f.description and f.suggestion for f in found)
    return {(f.name, f.table): f for f in found}


@pytest.fixture
def role(postgres_server: PostgresServer, database: str) -> Iterator[str]:
    """Make a role that may connect and nothing else."""
    postgres_server.execute(f"CREATE ROLE plain {LOGIN}")
    yield "plain"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP OWNED BY plain CASCADE")
    postgres_server.execute("DROP OWNED BY plain CASCADE", "DROP ROLE plain")


@req("C21")
def test_every_finding_is_in_the_manual() -> None:
    root = Path(__file__).parents[3]
    manual = (root / "docs" / "postgres.md").read_text()
    for module in ("preflight.py", "tables_check.py"):
        code = (root / "src/headrace/sources/postgres" / module).read_text()
        names = re.findall(r'(?:_add|Finding)\(\s*"([a-z-]+)"', code)
        names += re.findall(r'return "([a-z-]+)", ', code)
        assert len(names) > 8
        assert [name for name in names if f"`{name}`" not in manual] == []


def test_a_good_database_has_no_findings(database: str, sql: Sql) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    assert PostgresSource(database).preflight() == []
    assert PostgresSource(database, watermark="table").preflight() == []


@req("C21")
def test_every_bad_table_is_listed_at_once_and_the_remedies_work(database: str, sql: Sql) -> None:
    sql(
        "CREATE TABLE good (id int PRIMARY KEY)",
        "CREATE TABLE keyless (v int)",
        "CREATE TABLE late_key (id int PRIMARY KEY DEFERRABLE)",
        "CREATE TABLE nothing (id int PRIMARY KEY)",
        "ALTER TABLE nothing REPLICA IDENTITY NOTHING",
        "CREATE TABLE dropped_index (id int PRIMARY KEY, c int NOT NULL)",
        "CREATE UNIQUE INDEX gone ON dropped_index (c)",
        "ALTER TABLE dropped_index REPLICA IDENTITY USING INDEX gone",
        "DROP INDEX gone",
        "CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY)",
        "CREATE FOREIGN DATA WRAPPER far_away",
        "CREATE SERVER far FOREIGN DATA WRAPPER far_away",
        "CREATE FOREIGN TABLE abroad (id int) SERVER far",
        'CREATE TABLE "Odd ""name""" (v int)',
    )
    found = find(PostgresSource(database))
    assert set(found) == {
        ("no-key", "public.keyless"),
        ("deferrable-key", "public.late_key"),
        ("replica-identity-nothing", "public.nothing"),
        ("replica-identity-index-missing", "public.dropped_index"),
        ("unlogged-table", "public.unlogged"),
        ("foreign-table", "public.abroad"),
        ("no-key", 'public.Odd "name"'),
    }
    assert all(f.severity is Severity.ERROR for f in found.values())
    sql("DROP FOREIGN TABLE abroad")
    del found["foreign-table", "public.abroad"]
    for (name, _), finding in found.items():
        if name == "unlogged-table":
            statement = finding.suggestion.partition(" Or ")[0]
        else:
            statement = "ALTER TABLE " + finding.suggestion.rpartition("ALTER TABLE ")[2]
        sql(statement.partition(";")[0])
    assert PostgresSource(database).preflight() == []


@req("C21")
def test_partitions_whose_changes_are_not_in_the_log_are_refused(database: str, sql: Sql) -> None:
    sql(
        "CREATE TABLE p (id int, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE plain PARTITION OF p (PRIMARY KEY (id)) FOR VALUES FROM (0) TO (10)",
        "CREATE UNLOGGED TABLE quick PARTITION OF p FOR VALUES FROM (10) TO (20)",
        "CREATE FOREIGN DATA WRAPPER far_away",
        "CREATE SERVER far FOREIGN DATA WRAPPER far_away",
        "CREATE FOREIGN TABLE abroad PARTITION OF p FOR VALUES FROM (20) TO (30) SERVER far",
        "ALTER TABLE p REPLICA IDENTITY FULL",
        "ALTER TABLE plain REPLICA IDENTITY FULL",
    )
    found = find(PostgresSource(database))
    assert set(found) == {
        ("unlogged-table", "public.p"),
        ("foreign-table", "public.p"),
        ("partition-maintenance", "public.p"),
    }
    assert "public.quick" in found["unlogged-table", "public.p"].description
    assert "public.abroad" in found["foreign-table", "public.p"].description
    sql(found["unlogged-table", "public.p"].suggestion.partition(" Or ")[0])
    sql("ALTER TABLE quick REPLICA IDENTITY FULL", "ALTER TABLE p DETACH PARTITION abroad")
    assert set(find(PostgresSource(database, exclude=("abroad",)))) == {
        ("partition-maintenance", "public.p")
    }


@req("C21")
def test_an_identity_by_columns_that_are_not_in_the_log_is_refused(database: str, sql: Sql) -> None:
    """Published, such a table refuses its own applications' updates from 18 on; before, two rows may be one."""
    with psycopg.connect(database) as session:
        newest = session.info.server_version // 10_000 >= 18
    sql(
        "CREATE TABLE by_key (a int, b int, g int GENERATED ALWAYS AS (b * 2) STORED, PRIMARY KEY (a, g))",
        "CREATE TABLE whole (a int PRIMARY KEY, g int GENERATED ALWAYS AS (a * 2) STORED)",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        "CREATE TABLE beside (a int PRIMARY KEY, g int GENERATED ALWAYS AS (a * 2) STORED)",
    )
    judged = {
        table for name, table in find(PostgresSource(database)) if name == "generated-identity"
    }
    assert judged == {"public.by_key", *(["public.whole"] if newest else [])}
    if not newest:
        return
    sql("CREATE TABLE computed (a int PRIMARY KEY, v int GENERATED ALWAYS AS (a) VIRTUAL)")
    sql("ALTER TABLE computed REPLICA IDENTITY FULL")
    sql(
        "CREATE PUBLICATION theirs FOR TABLE by_key, whole, beside, computed "
        "WITH (publish_generated_columns = stored)"
    )
    adopted = find(PostgresSource(database, publication="theirs"))
    # Stored ones are told there, computed ones never.
    assert {table for name, table in adopted if name == "generated-identity"} == {"public.computed"}


def test_what_is_excluded_is_not_judged(database: str, sql: Sql) -> None:
    sql("CREATE TABLE good (id int PRIMARY KEY)", "CREATE TABLE keyless (v int)")
    assert PostgresSource(database, exclude=("keyless",)).preflight() == []
    assert PostgresSource(database, tables=("good",)).preflight() == []


def test_no_table_matches(database: str, sql: Sql) -> None:
    found = find(PostgresSource(database, tables=("shop.*",)))
    assert set(found) == {("no-tables", "")}
    assert "shop.*" in found["no-tables", ""].description


def test_notes_are_warnings(database: str, sql: Sql) -> None:
    sql(
        "CREATE TABLE g (id int PRIMARY KEY, d int GENERATED ALWAYS AS (id) STORED)",
        "CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)",
    )
    found = find(PostgresSource(database))
    assert set(found) == {("generated-columns", "public.g"), ("partition-maintenance", "public.p")}
    assert {f.severity for f in found.values()} == {Severity.WARNING}


def test_partitions_must_carry_the_identity_that_their_root_shows(database: str, sql: Sql) -> None:
    sql(
        "CREATE TABLE a (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE a1 PARTITION OF a FOR VALUES FROM (0) TO (9)",
        "CREATE TABLE a2 PARTITION OF a FOR VALUES FROM (10) TO (19)",
        "ALTER TABLE a1 REPLICA IDENTITY FULL",  # more than needed is fine
        "ALTER TABLE a2 REPLICA IDENTITY NOTHING",
        "CREATE TABLE b (id int) PARTITION BY RANGE (id)",
        "CREATE TABLE b1 PARTITION OF b FOR VALUES FROM (0) TO (9)",
        "ALTER TABLE b REPLICA IDENTITY FULL",
        "CREATE TABLE c (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "ALTER TABLE c REPLICA IDENTITY FULL",
    )
    found = find(PostgresSource(database))
    errors = {key: f for key, f in found.items() if f.severity is Severity.ERROR}
    assert set(errors) == {
        ("partition-identity", "public.a"),
        ("partition-identity", "public.b"),
        ("partitioned-identity", "public.c"),
    }
    for finding in errors.values():
        sql(*finding.suggestion.partition(" (")[0].rstrip("; ").split(";"))
    assert not any(f.severity is Severity.ERROR for f in PostgresSource(database).preflight())


def test_a_role_without_rights_sees_each_missing_right(database: str, sql: Sql, role: str) -> None:
    sql(
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.t (id int PRIMARY KEY)",
        "CREATE TABLE shop.hidden (id int PRIMARY KEY)",
        "ALTER TABLE shop.hidden ENABLE ROW LEVEL SECURITY",
        "GRANT SELECT ON shop.hidden TO plain",
    )
    source = PostgresSource(as_role(database, role), tables=("shop.*",), watermark="table")
    found = find(source)
    assert set(found) == {
        ("role-not-replication", ""),
        ("may-not-create-publication", ""),
        ("watermark-table-missing", ""),
        ("no-schema-usage", "shop.t"),
        ("no-select", "shop.t"),
        ("not-owner", "shop.t"),
        ("no-schema-usage", "shop.hidden"),
        ("row-security", "shop.hidden"),
        ("not-owner", "shop.hidden"),
    }


def test_a_role_with_replication_and_select_only_passes_with_what_an_administrator_made(
    database: str, sql: Sql, role: str
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "ALTER ROLE plain REPLICATION",
        "GRANT SELECT ON t TO plain",
        "CREATE PUBLICATION theirs FOR TABLE t",
        "SELECT pg_create_logical_replication_slot('their_slot_2', 'pgoutput')",
    )
    source = PostgresSource(as_role(database, role), slot="their_slot_2", publication="theirs")
    assert source.preflight() == []
    with_table = PostgresSource(
        as_role(database, role), slot="their_slot_2", publication="theirs", watermark="table"
    )
    found = find(with_table)
    assert set(found) == {("watermark-table-missing", ""), ("watermark-table-not-published", "")}
    for finding in found.values():
        sql(*(s for s in finding.suggestion.split(";") if s.strip()))
    assert with_table.preflight() == []


def test_a_role_that_may_not_emit_messages(database: str, sql: Sql, role: str) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)", "ALTER ROLE plain REPLICATION")
    sql(*(f"REVOKE EXECUTE ON FUNCTION {name} FROM PUBLIC" for name in emitters(database)))
    source = PostgresSource(as_role(database, role))
    assert ("may-not-emit-messages", "") in find(source)


def test_a_named_publication_is_checked_in_every_respect(database: str, sql: Sql) -> None:
    sql(
        "CREATE TABLE a (id int PRIMARY KEY, v int)",
        "CREATE TABLE b (id int PRIMARY KEY)",
        "CREATE TABLE c (id int PRIMARY KEY, v int)",
        "CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (9)",
        "CREATE PUBLICATION theirs FOR TABLE a WHERE (id > 5), c (id), p "
        "WITH (publish = 'insert, update')",
    )
    found = find(PostgresSource(database, publication="theirs"))
    assert set(found) >= {
        ("publication-actions", ""),
        ("publication-not-via-root", ""),
        ("row-filter", "public.a"),
        ("table-not-published", "public.b"),
        ("column-list", "public.c"),
    }
    assert "delete, truncate" in found["publication-actions", ""].description
    assert "v" in found["column-list", "public.c"].description
    assert found["column-list", "public.c"].severity is Severity.WARNING
    missing = find(PostgresSource(database, publication="nowhere"))
    assert ("publication-missing", "") in missing


def test_a_named_slot_is_checked(database: str, sql: Sql, postgres_server: PostgresServer) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    assert ("slot-missing", "") in find(PostgresSource(database, slot="nowhere"))
    postgres_server.execute("SELECT pg_create_physical_replication_slot('physical_one')")
    postgres_server.execute("SELECT pg_create_logical_replication_slot('elsewhere', 'pgoutput')")
    try:
        assert ("slot-wrong-plugin", "") in find(PostgresSource(database, slot="physical_one"))
        assert ("slot-wrong-database", "") in find(PostgresSource(database, slot="elsewhere"))
    finally:
        postgres_server.execute(
            "SELECT pg_drop_replication_slot('physical_one')",
            "SELECT pg_drop_replication_slot('elsewhere')",
        )


def test_our_own_publication_that_belongs_to_another_role(
    database: str, sql: Sql, role: str
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "ALTER ROLE plain REPLICATION",
        "CREATE PUBLICATION headrace",
    )
    found = find(PostgresSource(as_role(database, role)))
    assert ("publication-foreign-owner", "") in found


def test_a_server_that_is_not_ready_for_logical_decoding() -> None:
    settings = {"wal_level": "replica", "max_replication_slots": "1", "max_wal_senders": "1"}
    with EmbeddedPostgres(settings=settings) as server:
        server.execute(
            "CREATE TABLE t (id int PRIMARY KEY)",
            "SELECT pg_create_physical_replication_slot('taken')",
        )
        found = find(PostgresSource(server.url()))
        assert set(found) == {("wal-level", ""), ("no-free-slot", "")}
        assert "ALTER SYSTEM SET wal_level" in found["wal-level", ""].suggestion


def test_an_encoding_that_says_nothing_about_text_is_a_warning(
    postgres_server: PostgresServer,
) -> None:
    postgres_server.execute(
        "CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'"
    )
    try:
        postgres_server.execute("CREATE TABLE t (id int PRIMARY KEY)", database="ascii")
        found = find(PostgresSource(postgres_server.url("ascii")))
        assert found["encoding-unknown", ""].severity is Severity.WARNING
    finally:
        postgres_server.drop_database("ascii")


def test_a_slot_in_use_is_a_warning(database: str, sql: Sql) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    source = PostgresSource(database)
    source.prepare()

    class Nowhere:
        def put(self, schema: object) -> int:
            return 1

        def get(self, schema_id: int) -> object:
            raise AssertionError

    reader = source.open(Nowhere())  # type: ignore[arg-type]
    until(lambda: bool(source.preflight()), "the slot is active", DEADLINE_S)
    assert {(f.name, f.severity) for f in source.preflight()} == {("slot-active", Severity.WARNING)}
    reader.close()


@req("T8")
def test_a_standby_is_refused() -> None:
    with EmbeddedPostgres() as server:
        server.execute("CREATE TABLE t (id int PRIMARY KEY)")
        server.stop()
        (server.data / "standby.signal").touch()
        server.start()
        assert ("standby", "") in find(PostgresSource(server.url()))
        with pytest.raises(PreflightFailed, match="standby"):
            PostgresSource(server.url()).prepare()
