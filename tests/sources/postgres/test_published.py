"""What a publication publishes: as the server's own view says, on every version, and beside any lock."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.published import published_sql
from headrace.sources.postgres.settings import ColumnChoice
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.sources.postgres.support import Opened

pytestmark = pytest.mark.postgres

T, U = TableId("public", "t"), TableId("public", "u")

TABLES = (
    "CREATE SCHEMA one",
    "CREATE SCHEMA two",
    "CREATE TABLE one.a (id int PRIMARY KEY, b int, c int GENERATED ALWAYS AS (b * 2) STORED, gone int)",
    "ALTER TABLE one.a DROP gone",
    "CREATE TABLE one.child () INHERITS (one.a)",
    "CREATE UNLOGGED TABLE one.unlogged (id int PRIMARY KEY)",
    "CREATE TABLE two.p (id int, k int, PRIMARY KEY (id, k)) PARTITION BY RANGE (id)",
    "CREATE TABLE two.p1 PARTITION OF two.p FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (k)",
    "CREATE TABLE two.p11 PARTITION OF two.p1 FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE one.p2 PARTITION OF two.p FOR VALUES FROM (10) TO (20)",
    "CREATE TABLE two.empty (id int) PARTITION BY RANGE (id)",
    'CREATE TABLE two."Odd ""name" (id int PRIMARY KEY, "a,b" text)',
)
PUBLICATIONS = (
    "FOR ALL TABLES",
    "FOR TABLE one.a, two.p",
    "FOR TABLE two.p1, one.p2",
    "FOR TABLE two.p, two.p1, two.p11",
    'FOR TABLE two."Odd ""name", two.empty',
    "",
)
CHOOSY = (
    "FOR TABLES IN SCHEMA one",
    "FOR TABLES IN SCHEMA two",
    "FOR TABLES IN SCHEMA one, two",
    "FOR TABLE one.a (id, b)",
    "FOR TABLE one.a WHERE (id > 3)",
    "FOR TABLE two.p (id, k) WHERE (id > 3), two.p1",
    'FOR TABLE two."Odd ""name" WHERE (id > 1), TABLES IN SCHEMA one',
    "FOR TABLE one.a WHERE (id > 1), TABLES IN SCHEMA one",
    "FOR TABLE two.p11 (id, k), one.p2 WHERE (id > 12)",
)


def test_it_is_what_the_servers_own_view_says(database: str, sql: Sql) -> None:
    sql(*TABLES)
    with psycopg.connect(database, autocommit=True) as session:
        version = session.info.server_version // 10_000
        columns = "rowfilter IS NOT NULL, attnames::text[]" if version >= 15 else "false, NULL"
        wanted = [*PUBLICATIONS, *(CHOOSY if version >= 15 else ())]
        options = ["", "publish_via_partition_root = true"]
        if version >= 18:
            options += ["publish_generated_columns = stored"]
        compared = 0
        for chosen in wanted:
            for option in options:
                more = f" WITH ({option})" if option else ""
                if "two.p (" in chosen and not option.endswith("root = true"):
                    # The server refuses a choice of a table that is published by its partitions.
                    continue
                sql(f"CREATE PUBLICATION p {chosen}{more}")
                theirs = session.execute(
                    f"SELECT schemaname, tablename, {columns} FROM pg_publication_tables"
                    " WHERE pubname = 'p'".encode()
                ).fetchall()
                if version == 15:
                    # It lists a generated column, which it does not publish.
                    theirs = [(*row[:3], [n for n in row[3] if n != "c"]) for row in theirs]
                ours = session.execute(published_sql(version).replace("$1", "'p'").encode())
                found = [row[1:] for row in ours.fetchall()]
                assert sorted(found, key=str) == sorted(theirs, key=str), (chosen, option)
                compared += len(theirs)
                sql("DROP PUBLICATION p")
        assert compared > 40


@pytest.fixture(params=["list", "adopted"])
def source(request: pytest.FixtureRequest, database: str, sql: Sql) -> PostgresSource:
    """Give one whose publication says which columns there are, and that does not wait for locks."""
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text, w text)",
        "CREATE TABLE u (id int PRIMARY KEY)",
        "INSERT INTO t VALUES (1, 'a', 'b')",
        "ANALYZE t",
        "ANALYZE u",
    )
    hasty = f"{database}&options=-c%20lock_timeout%3D1000"
    if request.param == "adopted":
        sql("CREATE PUBLICATION theirs FOR TABLE t (id, v), u")
        return PostgresSource(hasty, publication="theirs")
    return PostgresSource(hasty, columns=(ColumnChoice(T, exclude=frozenset({"w"})),))


@req("N22", "N09")
@pytest.mark.since(15)
def test_a_table_that_somebody_keeps_locked_holds_no_other_up(
    source: PostgresSource, database: str, sql: Sql, tmp_path: Path
) -> None:
    source.prepare()
    with psycopg.connect(database) as other:
        other.execute("LOCK TABLE u IN ACCESS EXCLUSIVE MODE")
        assert [table.names for table in source.tables()] == [["id", "v"], ["id"]]
        reader = source.chunks()
        chunk = reader.read(T, None, ("9",), 10)
        assert chunk.rows.to_pylist() == [{"id": 1, "v": "a"}]
        reader.close()
        # The log, too, has to know which columns there are before it hands the first row on.
        log = Opened(source, tmp_path)
        sql("INSERT INTO t VALUES (2, 'c', 'd')")
        assert log.collect().changes("t") == [("+I", 2, "c")]
        log.close()


@req("N22")
@pytest.mark.since(15)
def test_each_table_has_the_columns_of_its_own_list(database: str, sql: Sql) -> None:
    """They are asked for together."""
    sql(
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, v text, w text)" for name in ("t", "u", "x")),
        "CREATE PUBLICATION theirs FOR TABLE t (id, v), u (id, w), x",
    )
    found = {
        schema.table.name: schema.names
        for schema in PostgresSource(database, publication="theirs").tables()
    }
    assert found == {"t": ["id", "v"], "u": ["id", "w"], "x": ["id", "v", "w"]}
    chosen = PostgresSource(
        database,
        publication="theirs",
        columns=(ColumnChoice(U, exclude=frozenset({"w"})),),
    )
    assert [schema.names for schema in chosen.tables()] == [["id", "v"], ["id"], ["id", "v", "w"]]
