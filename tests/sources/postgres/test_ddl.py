"""The event trigger: migrations become events at their exact place, and never fail because of it."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import psycopg
import pytest

from headrace.errors import ProtocolError
from headrace.model.block import ORIGIN_LOG, SystemKind
from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.ddl import DROP_TRIGGER_SQL, parse
from tests.fixtures_postgres import Sql, emitters
from tests.requirements import req
from tests.sources.postgres.support import Opened, opened

pytestmark = pytest.mark.postgres

TABLES = (TableId("public", "t"), TableId("public", "u"), TableId("s1", "x"))


def install(database: str) -> PostgresSource:
    """Run what preflight prints, and nothing else."""
    source = PostgresSource(database, tables=("public.*", "s*.*"), ddl="trigger")
    (finding,) = (f for f in source.preflight() if f.name == "ddl-trigger-missing")
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(finding.suggestion.partition(": ")[2].encode())
    assert "ddl-trigger-missing" not in {f.name for f in source.preflight()}
    return source


def look(log: Opened) -> None:
    """Let the stream know the tables, as the first two looks of a capture do."""
    reader = log.source.chunks()
    reader.look(reader.look({}, TABLES, ()).tables, (), ())
    reader.close()


@req("P34", "C30")
def test_events_stand_exactly_where_the_migration_was(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(
        "CREATE SCHEMA s1", "CREATE TABLE s1.x (id int PRIMARY KEY)",
        "CREATE TABLE t (id int PRIMARY KEY, n int)", "CREATE TABLE u (id int PRIMARY KEY)",
    )  # fmt: skip
    install(database)
    arguments = {"tables": ("public.*", "s*.*"), "ddl": "trigger"}
    with opened(database, tmp_path, **arguments) as log:
        look(log)
        sql("INSERT INTO t VALUES (0, 0)", "INSERT INTO u VALUES (0)")
        log.collect()
        sql(
            "BEGIN; INSERT INTO u VALUES (1); SAVEPOINT a; ALTER TABLE t ADD w int; RELEASE a;"
            "INSERT INTO u VALUES (2); ALTER TABLE t RENAME n TO m; INSERT INTO u VALUES (3);"
            "ALTER TABLE t ALTER w TYPE bigint; INSERT INTO u VALUES (4); COMMIT",
            "BEGIN; INSERT INTO t VALUES (5); ALTER TABLE t RENAME TO moved; INSERT INTO u VALUES (5);"
            "ALTER SCHEMA s1 RENAME TO s2; INSERT INTO u VALUES (6); CREATE SCHEMA s3;"
            "INSERT INTO u VALUES (7); DROP TABLE moved; INSERT INTO u VALUES (8); DROP SCHEMA s3; COMMIT",
            "BEGIN; DROP TABLE u; ROLLBACK",
            "INSERT INTO u VALUES (9)",
        )
        got = log.collect()
        places = sorted(
            [(e.scn, e.ord, e.kind.value, str(e.table), e.payload.get("to")) for e in got.events]
            + [(r["_scn"], r["_ord"], "row", "u", r["id"]) for r in got.rows("u")]
        )
        assert [place[2:] for place in places] == [
            ("row", "u", 1),
            ("schema", "public.t", None),
            ("row", "u", 2),
            ("schema", "public.t", None),
            ("row", "u", 3),
            ("schema", "public.t", None),
            ("row", "u", 4),
            ("rename_table", "public.t", "public.moved"),
            ("row", "u", 5),
            ("rename_schema", "s1.", "s2"),
            ("rename_table", "s1.x", "s2.x"),
            ("row", "u", 6),
            ("create_schema", "s3.", None),
            ("row", "u", 7),
            ("drop_table", "public.moved", None),
            ("row", "u", 8),
            ("row", "u", 9),
        ]
        shapes = [e.payload["schema_id"] for e in got.events if e.kind is SystemKind.SCHEMA]
        assert [log.schema(i).names for i in shapes] == [
            ["id", "n", "w"],
            ["id", "m", "w"],
            ["id", "m", "w"],
        ]
        # The log's own description, at the next row, found nothing new.
        (row,) = got.rows("t")
        assert row["_ord"] == 0


@req("P34", "A-11")
def test_a_shape_is_told_of_from_the_first_look_on(database: str, sql: Sql, tmp_path: Path) -> None:
    """The dump of a table begins with the look that finds it, so its windows need the trigger from there on."""
    sql(*(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in ("t", "u", "v")))
    install(database)
    with opened(database, tmp_path, ddl="trigger") as log:
        # Behind the start of the log and ahead of the look, which knows the outcome alone.
        sql("ALTER TABLE v ADD m int", "ALTER TABLE v RENAME TO moved")
        reader = log.source.chunks()
        known = reader.look({}, (TABLES[0], TableId("public", "moved")), ()).tables
        sql("ALTER TABLE t ADD n int", "ALTER TABLE u ADD n int", "DROP TABLE t")
        told = [(e.kind, e.table.name) for e in log.collect().events]
        assert told == [
            (SystemKind.SCHEMA, "moved"),
            (SystemKind.SCHEMA, "t"),
            (SystemKind.DROP_TABLE, "t"),
        ]
        # A table that joins later, likewise.
        (stranger,) = reader.look(known, (), ()).joining
        joined = reader.look(known, (), {stranger})
        sql("ALTER TABLE u ADD m int")
        reader.close()
        assert stranger in joined.joined
        assert [(e.kind, e.table.name) for e in log.collect().events] == [(SystemKind.SCHEMA, "u")]


@req("C29")
def test_each_event_says_its_place_its_transaction_its_tables_and_the_key(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """Table, columns and key are those of the table version that the event, or the last one of its table, names; its
    number is how many changes the index lists ahead of it.

    Events of a look have no transaction (0): nobody knows which one it was.
    """
    sql(
        "CREATE SCHEMA s1", "CREATE TABLE s1.x (id int PRIMARY KEY)",
        "CREATE SCHEMA s5", "CREATE TABLE u (id int PRIMARY KEY)",
        "CREATE TABLE t (id int, code text, n int, PRIMARY KEY (code, id))",
    )  # fmt: skip
    install(database)
    statements = (
        "ALTER TABLE t ADD w int",
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD CONSTRAINT t_pkey PRIMARY KEY (id)",
        "TRUNCATE u",
        "ALTER TABLE u RENAME TO v",
        "DROP TABLE t",
        "CREATE SCHEMA s3",
        "ALTER SCHEMA s1 RENAME TO s2",
        "DROP SCHEMA s5",
    )
    with opened(database, tmp_path, tables=("public.*", "s*.*"), ddl="trigger") as log:
        look(log)
        sql(*(f"INSERT INTO {name} (id) VALUES (0)" for name in ("u", "s1.x")))
        sql("INSERT INTO t VALUES (0, 'a', 0)")
        keys = {
            body.table: log.schema(body.schema_id).key
            for block in log.collect().blocks
            for body in block.bodies
        }
        xids = []
        for statement in statements:
            with psycopg.connect(database) as session:
                session.execute(statement.encode())
                row = session.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
                assert row is not None
                xids.append(row[0])
        got = log.collect()
    assert keys == dict(zip(TABLES, (("id", "code"), ("id",), ("id",)), strict=True))
    entries = {entry["scn"]: entry for entry in got.index}
    ahead = dict(
        zip(entries, accumulate((e["changes"] for e in got.index), initial=0), strict=False)
    )
    numbers = [ahead[event.scn] + event.ord for event in got.events]
    assert numbers == list(range(len(got.events)))
    told, shapes = [], []
    for event in got.events:
        entry = entries[event.scn]
        assert (entry["origin"], entry["last_piece"]) == (ORIGIN_LOG, 1)
        assert 0 <= event.ord < entry["changes"]
        if event.kind is SystemKind.SCHEMA:
            named = log.schema(event.payload["schema_id"])
            assert named.table == event.table
            keys[event.table] = named.key
            shapes.append([(column.name, column.source_type) for column in named.columns])
        place = (event.kind.value, event.table.schema, event.table.name, event.payload.get("to"))
        told.append((entry["xid"], *place, keys.get(event.table)))
    columns = [("id", "integer"), ("code", "text"), ("n", "integer"), ("w", "integer")]
    assert shapes == [columns, columns]
    add, change, truncate, rename, drop, create, move, forget = xids
    assert told == [
        (add, "schema", "public", "t", None, ("id", "code")),
        (change, "schema", "public", "t", None, ("id",)),
        (truncate, "truncate", "public", "u", None, ("id",)),
        (rename, "rename_table", "public", "u", "public.v", ("id",)),
        (drop, "drop_table", "public", "t", None, ("id",)),
        (create, "create_schema", "s3", "", None, None),
        (move, "rename_schema", "s1", "", "s2", None),
        (move, "rename_table", "s1", "x", "s2.x", ("id",)),
        (forget, "drop_schema", "s5", "", None, None),
    ]


@req("P34")
@pytest.mark.parametrize("identity", ["DEFAULT", "FULL", "USING INDEX by_code"])
def test_the_trigger_describes_a_table_as_the_log_does(
    database: str, sql: Sql, tmp_path: Path, identity: str
) -> None:
    # A generated column is not in the log, where FULL would have it.
    computed = "" if identity == "FULL" else "g int GENERATED ALWAYS AS (id + 1) STORED, "
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, code varchar(9) NOT NULL, p numeric(9, 2), a text[], "
        f"{computed}gone int)",
        "CREATE UNIQUE INDEX by_code ON t (code)",
        f"ALTER TABLE t REPLICA IDENTITY {identity}",
        "ALTER TABLE t DROP gone",
    )
    install(database)
    with opened(database, tmp_path, ddl="trigger") as log:
        look(log)
        sql("ALTER TABLE t ADD w uuid", "INSERT INTO t VALUES (1, 'a')")
        got = log.collect()
        (event,) = got.events
        (body,) = (body for block in got.blocks for body in block.bodies)
        assert event.payload["schema_id"] == body.schema_id
        assert event.scn < got.rows("t")[0]["_scn"]


def test_a_column_that_the_publication_leaves_out_is_in_no_event(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, secret text, n int)",
        "CREATE PUBLICATION part FOR TABLE t (id, n)",
    )
    install(database)
    with opened(database, tmp_path, ddl="trigger", publication="part") as log:
        look(log)
        sql("INSERT INTO t (id) VALUES (1)")
        log.collect()
        sql(
            "ALTER TABLE t ADD w int",
            "ALTER TABLE t RENAME n TO m",
            "INSERT INTO t (id) VALUES (2)",
        )
        (event,) = log.collect().events
        assert log.schema(event.payload["schema_id"]).names == ["id", "m"]


def test_without_the_setting_the_trigger_is_of_no_concern(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    install(database)
    with opened(database, tmp_path) as log:
        look(log)
        sql("ALTER TABLE t ADD w int", "DROP TABLE t")
        assert log.collect().events == []


def test_a_migration_goes_on_when_the_trigger_fails_and_the_trigger_can_be_taken_away(
    database: str, sql: Sql
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    install(database)
    # The trigger's own right to write messages is taken away from everybody but superusers, who it runs as.
    sql(
        "CREATE ROLE app_owner", "GRANT ALL ON SCHEMA public TO app_owner",
        "ALTER TABLE t OWNER TO app_owner",
        "ALTER FUNCTION headrace.tell_ddl() OWNER TO app_owner",
        *(f"REVOKE EXECUTE ON FUNCTION {name} FROM PUBLIC" for name in emitters(database)),
    )  # fmt: skip
    try:
        sql("ALTER TABLE t ADD w int")
    finally:
        sql(
            *(f"GRANT EXECUTE ON FUNCTION {name} TO PUBLIC" for name in emitters(database)),
            DROP_TRIGGER_SQL,
            "DROP OWNED BY app_owner CASCADE",
            "DROP ROLE app_owner",
        )
    source = PostgresSource(database, tables=("*.*",), ddl="trigger")
    assert "ddl-trigger-missing" in {f.name for f in source.preflight()}


@pytest.mark.parametrize("content", [b"", b"x", b"{}", b"[1]", b'{"event": "other"}', b"\xff"])
def test_a_message_that_is_none_of_the_triggers_is_a_named_error(content: bytes) -> None:
    with pytest.raises(ProtocolError, match="none of our event trigger's"):
        parse(content)
