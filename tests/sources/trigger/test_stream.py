"""What the triggers keep, and what comes of it: images, order, windows, restarts, and other people's triggers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from headrace.errors import ProtocolError, WatermarkOutOfOrder
from headrace.fold import fold
from headrace.fold.form import ROW
from headrace.model.block import SystemKind
from headrace.model.rowkey import encode_rows
from headrace.model.schema import KeyCheck, TableId
from headrace.sources.trigger.postgres.image import cells_of
from tests.fixtures_postgres import Sql, name_of
from tests.requirements import req
from tests.sources.postgres.hostile import HOSTILE
from tests.sources.postgres.kinds import KINDS, SETUP
from tests.sources.trigger.support import TriggerLog, opened, session, transactions_of

pytestmark = pytest.mark.postgres

T = TableId("public", "t")


@req("D117", "D112")
def test_every_type_is_the_same_by_trigger_and_by_select(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """Whatever the writer's session renders: the settings are the function's own."""
    sql(*SETUP)
    columns = ", ".join(f"c{n} {kind.name}" for n, kind in enumerate(KINDS))
    sql(f"CREATE TABLE t (id int PRIMARY KEY, {columns})")
    name = name_of(database)
    sql(*(f"ALTER DATABASE {name} SET {k} = {v}" for k, v in HOSTILE.items()))
    rng = random.Random(5)
    casts = ", ".join(f"%s::{kind.name}" for kind in KINDS)
    with opened(database, tmp_path) as log, psycopg.connect(database, autocommit=True) as writer:
        # Literals are read as everybody reads them, and written under the database's own settings.
        writer.execute("SET DateStyle = 'SQL, YMD'")
        for place in range(20):
            writer.execute(
                f"INSERT INTO t VALUES (%s, {casts})".encode(), (place, *cells(place, rng))
            )
        batches = [b.batch for block in log.covered().blocks for b in block.bodies]
        kept = pa.Table.from_batches(batches).combine_chunks()
        reader = log.source.chunks()
        try:
            chunk = reader.read(T, None, ("99",), 100)
        finally:
            reader.close()
        assert kept.num_rows == chunk.rows.num_rows == 20
        for column in chunk.schema.columns:
            ours, theirs = kept.column(column.name), chunk.rows.column(column.name)
            assert ours.type == theirs.type
            assert encode_rows([ours]).equals(encode_rows([theirs])), column.source_type
        assert log.registry.get(chunk.schema.schema_id) == chunk.schema


def cells(place: int, rng: random.Random) -> list[str | None]:
    """Return a value of each kind: its extremes first, then any, null at last."""
    found: list[str | None] = []
    for kind in KINDS:
        if place < len(kind.values):
            found.append(kind.values[place])
        else:
            found.append(kind.make(rng) if kind.make and place < 19 else None)
    return found


@req("D117")
def test_a_transaction_comes_whole_over_its_tables_and_none_that_was_rolled_back(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE TABLE u (id int PRIMARY KEY)")
    with opened(database, tmp_path) as log, session(database) as one:
        one.execute("INSERT INTO t VALUES (1, 'a')")
        one.execute("SAVEPOINT s")
        one.execute("INSERT INTO t VALUES (2, 'gone')")
        one.execute("ROLLBACK TO s")
        one.execute("INSERT INTO u VALUES (7)")
        one.execute("UPDATE t SET id = 5, v = 'b' WHERE id = 1")
        one.commit()
        one.execute("INSERT INTO t VALUES (3, 'never')")
        one.rollback()
        collected = log.collect()
        assert collected.changes("public.t") == [("+I", 1, "a"), ("-U", 1, "a"), ("+U", 5, "b")]
        assert collected.changes("public.u") == [("+I", 7)]
        ((scn, _),) = transactions_of(collected)
        assert {
            row["_scn"] for table in ("public.t", "public.u") for row in collected.rows(table)
        } == {scn}


@req("D117")
def test_the_first_change_of_a_transaction_may_be_one_that_is_rolled_back(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """What marks the transaction goes back with it, and is set again by the next."""
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path) as log, session(database) as one:
        one.execute("SAVEPOINT s")
        one.execute("INSERT INTO t VALUES (1)")
        one.execute("ROLLBACK TO s")
        one.execute("INSERT INTO t VALUES (2)")
        one.commit()
        assert log.collect().changes("public.t") == [("+I", 2)]


@req("D117")
def test_a_prepared_transaction_comes_when_it_is_committed(sql: Sql, tmp_path: Path) -> None:
    from headrace.testing.postgres import EmbeddedPostgres

    with EmbeddedPostgres(settings={"max_prepared_transactions": "5"}) as server:
        server.execute("CREATE TABLE t (id int PRIMARY KEY)")
        with opened(server.url(), tmp_path) as log:
            server.execute("BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'p'")
            server.execute("INSERT INTO t VALUES (2)")
            assert log.collect().changes("public.t") == [("+I", 2)]
            log.reader.close()
            server.restart()
            server.execute("COMMIT PREPARED 'p'")
            log.reopen()
            assert log.covered().changes("public.t") == [("+I", 1)]


@req("D117")
def test_a_place_in_the_middle_of_a_tick_goes_on_there(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path) as log:
        sql(*(f"INSERT INTO t VALUES ({n})" for n in range(10)))
        scns = [scn for scn, _ in transactions_of(log.covered())]
        log.reader.acknowledge(str(scns[3]))
        log.reopen()
        assert log.covered().changes("public.t") == [("+I", n) for n in range(4, 10)]


WRITE = (
    "INSERT INTO headrace.txlog_changes (xid, seq, relid, op, first, after) "
    "VALUES (pg_current_xact_id(), nextval('headrace.txlog_seq'), 0, 'M', {}, '{}')"
)


@pytest.mark.parametrize(
    "statement",
    [
        WRITE.format("true", "rubbish"),
        WRITE.format("true", "[1, 2, 3]"),
        "BEGIN; INSERT INTO t VALUES (1); "
        + WRITE.format("false", '["headrace", "low a b"]')
        + "; COMMIT",
    ],
)
def test_a_mark_that_nobody_of_us_wrote_stops_the_log(
    database: str, sql: Sql, tmp_path: Path, statement: str
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path) as log:
        sql(statement)
        with pytest.raises(WatermarkOutOfOrder, match="txlog_changes"):
            log.collect()


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM headrace.txlog_changes",
        "DELETE FROM headrace.txlog",
        "UPDATE headrace.txlog_changes SET layout = NULL",
        "UPDATE headrace.txlog_changes SET layout = '[]'",
        "UPDATE headrace.txlog_changes SET after = '(1,2'",
        "UPDATE headrace.txlog_changes SET after = NULL",
        "UPDATE headrace.txlog_changes SET op = 'X'",
    ],
)
def test_damage_to_the_change_tables_is_named(
    database: str, sql: Sql, tmp_path: Path, damage: str
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path) as log:
        sql("INSERT INTO t VALUES (1)")
        log.source.end_scn()
        sql(damage)
        with pytest.raises(ProtocolError) as raised:
            log.covered()
        assert raised.value.next_step


# -- images ---------------------------------------------------------------------------------------


def test_images_that_are_no_rows_are_refused() -> None:
    assert cells_of(b"()", 0) == []
    assert cells_of(b"()", 1) == [None]
    assert cells_of(b'(,"",a)', 3) == [None, b"", b"a"]
    assert cells_of(b'("a""b","c\\\\d","(,)")', 3) == [b'a"b', b"c\\d", b"(,)"]
    for broken in (b"", b"(", b"(a", b"a)", b"(a))", b'("a)', b'("a"b)', b"(a)x", b"((a)"):
        with pytest.raises(ProtocolError):
            cells_of(broken, 1)
    with pytest.raises(ProtocolError):
        cells_of(b"(a,b)", 1)


# -- other people's triggers, settings and roles --------------------------------------------------


ECHO = """
CREATE FUNCTION echo() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_trigger_depth() < 2 THEN
        UPDATE t SET v = v + 100 WHERE id = NEW.id + 1;
        UPDATE t SET v = v + 1 WHERE id = NEW.id;
    END IF;
    RETURN NULL;
END $$
"""


@req("D117")
@pytest.mark.parametrize("moment", ["AFTER", "BEFORE"])
def test_triggers_of_the_user_that_write_the_same_table_end_in_the_sources_rows(
    database: str, sql: Sql, tmp_path: Path, moment: str
) -> None:
    """Changes that one statement's triggers make come before those of the statement itself; their sum is right."""
    returned = ECHO if moment == "AFTER" else ECHO.replace("RETURN NULL", "RETURN NEW")
    if moment == "BEFORE":
        returned = returned.replace("UPDATE t SET v = v + 1 WHERE id = NEW.id;", "")
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        returned,
        f"CREATE TRIGGER a {moment} INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION echo()",
    )
    with opened(database, tmp_path) as log:
        # A row that a BEFORE trigger has changed may not be changed by its own statement.
        last = 4 if moment == "AFTER" else 2
        sql(
            "INSERT INTO t SELECT g, 0 FROM generate_series(1, 5) g",
            f"UPDATE t SET v = v + 7 WHERE id < {last}",
        )
        assert folded(log) == in_source(database)


@req("D117")
def test_foreign_keys_that_act_are_changes_too(database: str, sql: Sql, tmp_path: Path) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v int REFERENCES t ON UPDATE CASCADE ON DELETE SET NULL)",
    )
    with opened(database, tmp_path) as log:
        sql(
            "INSERT INTO t VALUES (1, NULL), (2, 1), (3, 2), (4, 1)",
            "UPDATE t SET id = id + 10",
            "DELETE FROM t WHERE id = 11",
        )
        assert folded(log) == in_source(database)


def folded(log: TriggerLog) -> dict[int, Any]:
    """Return what all changes amount to in an empty table."""
    collected = log.covered()
    (schema,) = log.source.tables()
    assert schema.key_check is KeyCheck.DEFERRED
    batches = [b.batch for block in collected.blocks for b in block.bodies]
    effects = fold(schema, batches).to_pylist()
    return {row["id"]: row["v"] for row in effects if row["_effect"] == ROW}


def in_source(database: str) -> dict[int, Any]:
    with psycopg.connect(database) as connection:
        return dict(connection.execute("SELECT id, v FROM t").fetchall())


@req("D117")
def test_what_another_replication_writes_is_a_change_too(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path) as log, session(database) as applier:
        applier.execute("SET session_replication_role = replica")
        applier.execute("INSERT INTO t VALUES (1)")
        applier.commit()
        assert log.collect().changes("public.t") == [("+I", 1)]


@req("D117")
def test_writers_need_no_right_on_the_change_tables(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE ROLE clerk", "GRANT INSERT ON t TO clerk")
    try:
        with opened(database, tmp_path) as log, session(database) as clerk:
            clerk.execute("SET ROLE clerk")
            clerk.execute("SET search_path = ''")
            clerk.execute("INSERT INTO public.t VALUES (1)")
            clerk.commit()
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                clerk.execute("SELECT FROM headrace.txlog_changes")
            clerk.rollback()
            assert log.collect().changes("public.t") == [("+I", 1)]
    finally:
        sql("DROP OWNED BY clerk", "DROP ROLE clerk")


def test_a_cast_that_the_tables_owner_made_is_not_run_with_our_rights(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE FUNCTION spy(t) RETURNS text LANGUAGE plpgsql AS "
        "$$ BEGIN RETURN '(666,' || session_user || ')'; END $$",
        "CREATE CAST (t AS text) WITH FUNCTION spy(t)",
    )
    with opened(database, tmp_path) as log:
        sql("INSERT INTO t VALUES (1, 'a')", "UPDATE t SET v = NULL")
        assert log.collect().changes("public.t") == [
            ("+I", 1, "a"),
            ("-U", 1, "a"),
            ("+U", 1, None),
        ]


# -- shapes ---------------------------------------------------------------------------------------


@req("D114")
def test_a_table_that_is_altered_between_and_inside_transactions(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """While nobody reads: the catalog is ahead of everything, and each image has the layout of its time."""
    sql("CREATE TABLE t (id int PRIMARY KEY, a text, b int)")
    with opened(database, tmp_path) as log, session(database) as one:
        sql("INSERT INTO t VALUES (1, 'x', 1)")
        sql("ALTER TABLE t DROP COLUMN a", "INSERT INTO t VALUES (2, 2)")
        one.execute("INSERT INTO t VALUES (3, 3)")
        one.execute("ALTER TABLE t ADD COLUMN c text")
        one.execute("INSERT INTO t VALUES (4, 4, 'new')")
        one.execute("SAVEPOINT s")
        one.execute("ALTER TABLE t ADD COLUMN d int")
        one.execute("INSERT INTO t VALUES (5, 5, 'five', 5)")
        one.execute("ROLLBACK TO s")
        one.execute("INSERT INTO t VALUES (6, 6, 'six')")
        one.commit()
        sql("ALTER TABLE t RENAME COLUMN b TO renamed", "UPDATE t SET renamed = 20 WHERE id = 2")
        collected = log.covered()
        assert collected.changes("public.t") == [
            ("+I", 1, "x", 1),
            ("+I", 2, 2),
            ("+I", 3, 3),
            ("+I", 4, 4, "new"),
            ("+I", 6, 6, "six"),
            ("-U", 2, 2, None),
            ("+U", 2, 20, None),
        ]
        told = [e for e in collected.events if e.kind is SystemKind.SCHEMA]
        columns = [log.registry.get(e.payload["schema_id"]).names for e in told]
        assert columns == [
            ["id", "a", "b"],
            ["id", "b"],
            ["id", "b", "c"],
            ["id", "renamed", "c"],
        ]
        numbers = [e.payload["numbers"] for e in told]
        assert numbers[-1]["renamed"] == numbers[0]["b"]
        assert [e.payload.get("needs_dump") for e in told] == [None] * 4


@req("D114")
def test_a_change_of_shape_that_fills_rows_asks_for_a_dump(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    with opened(database, tmp_path) as log:
        sql("INSERT INTO t VALUES (1, 1)")
        sql("ALTER TABLE t ADD COLUMN w int DEFAULT 5", "UPDATE t SET v = 2")
        sql("ALTER TABLE t ALTER COLUMN v TYPE bigint USING v * 10", "UPDATE t SET w = 6")
        told = [e for e in log.covered().events if e.kind is SystemKind.SCHEMA]
        assert [e.payload.get("needs_dump") for e in told] == [None, True, True]
        assert told[1].payload["filled"] == ["w"]


def test_a_truncate_stands_in_its_place(database: str, sql: Sql, tmp_path: Path) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY REFERENCES t)")
    with opened(database, tmp_path) as log, session(database) as one:
        one.execute("INSERT INTO t VALUES (1)")
        one.execute("TRUNCATE t CASCADE")
        one.execute("INSERT INTO t VALUES (2)")
        one.commit()
        collected = log.collect()
        events = [e for e in collected.events if e.kind is SystemKind.TRUNCATE]
        assert sorted(e.table.name for e in events) == ["t", "u"]
        (event,) = (e for e in events if e.table == T)
        first, second = collected.rows("public.t")
        assert first["_ord"] < event.ord < second["_ord"]


def test_another_table_of_the_name_begins_anew(database: str, sql: Sql, tmp_path: Path) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path) as log:
        sql("INSERT INTO t VALUES (1)", "ALTER TABLE t RENAME TO old")
        sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
        assert [str(table) for table in log.source.install()] == ["public.t"]
        sql("INSERT INTO t VALUES (1, 1)", "INSERT INTO old VALUES (2)")
        collected = log.covered()
        (anew,) = (e for e in collected.events if e.kind is SystemKind.TRUNCATE)
        assert anew.payload["anew"] is True
        assert collected.changes("public.t") == [("+I", 1), ("+I", 1, 1)]
        assert collected.changes("public.old") == [("+I", 2)]


def test_generated_columns_are_left_out_and_keyless_tables_are_multisets(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (a int, g int GENERATED ALWAYS AS (a * 2) STORED, b text)")
    with opened(database, tmp_path) as log:
        (schema,) = log.source.tables()
        assert (schema.names, schema.key_check) == (["a", "b"], KeyCheck.NONE)
        sql("INSERT INTO t (a, b) VALUES (1, 'x'), (1, 'x')", "UPDATE t SET b = 'y'")
        assert log.covered().changes("public.t") == [
            ("+I", 1, "x"),
            ("+I", 1, "x"),
            *[("-U", 1, "x"), ("+U", 1, "y")] * 2,
        ]
