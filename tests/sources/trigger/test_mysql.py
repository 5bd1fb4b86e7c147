"""What is particular to triggers on MySQL and MariaDB: snapshots, layouts, and what fires no trigger."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
import pytest

from headrace.errors import PreflightFailed, ProtocolError, SlotLost, SourceUnavailable
from headrace.model.block import SystemKind
from headrace.model.rowkey import encode_rows
from headrace.model.schema import KeyCheck, TableId
from headrace.sources.base import CatalogEntry, Severity
from headrace.sources.mysql.catalog import read_collations
from headrace.sources.mysql.connection import Session, connect
from headrace.sources.trigger.mysql import MysqlTriggerSource, clock, installed
from headrace.sources.trigger.mysql.catalog import read_layouts
from headrace.sources.trigger.mysql.clock import Striker
from headrace.sources.trigger.mysql.image import cells_of
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from tests.binlog_servers import is_mysql, make_user
from tests.requirements import req
from tests.sources.mysql.kinds import kinds
from tests.sources.mysql.test_types import create, fill
from tests.sources.trigger.served import MysqlServed, opened, session
from tests.sources.trigger.support import TriggerLog
from tests.waiting import until

KINDS = kinds()


@req("D117", "D112")
def test_every_type_is_the_same_by_trigger_and_by_select(
    on_mysql: MysqlServed, tmp_path: Path
) -> None:
    """Whatever the modes of the writer's session: they are those of the trigger's making."""
    server, name = on_mysql.server, on_mysql.database
    here = [k for k in KINDS if k.only.lower() in ("", server.kind.lower())]
    for place, kind in enumerate(here):
        on_mysql.sql(create(kind).replace("TABLE t ", f"TABLE t{place} "))
    with opened(on_mysql, tmp_path) as log:
        for place, kind in enumerate(here):
            on_mysql.sql(
                "SET NAMES utf8mb4",
                "SET sql_mode = 'ALLOW_INVALID_DATES,ANSI_QUOTES', time_zone = '+00:00'",
                fill(kind, made=20).replace("INTO t ", f"INTO t{place} "),
            )
        blocks = log.covered().blocks
        with_chunks = log.source.chunks()
        try:
            for place, kind in enumerate(here):
                table = TableId(name, f"t{place}")
                batches = [b.batch for block in blocks for b in block.bodies if b.table == table]
                kept = pa.Table.from_batches(batches).sort_by("id").combine_chunks()
                chunk = with_chunks.read(table, None, ("99999",), 10_000)
                assert kept.num_rows == chunk.rows.num_rows > 1
                ours, theirs = kept.column("v"), chunk.rows.column("v")
                assert ours.type == theirs.type
                assert encode_rows([ours]).equals(encode_rows([theirs])), kind.name
                assert log.registry.get(chunk.schema.schema_id) == chunk.schema
        finally:
            with_chunks.close()


@req("D117", "D112")
def test_a_number_that_is_shown_rounded_is_the_same_by_trigger_and_by_select(
    on_mysql: MysqlServed, tmp_path: Path
) -> None:
    on_mysql.sql("CREATE TABLE t (id int PRIMARY KEY, v double(10,3))")
    with opened(on_mysql, tmp_path) as log:
        # Kept as 1.2610000000000001 and 7.9350000000000005.
        values = (1.2613670881738115, 7.934708258477205, 3.994256668241162, 8.975616227434074)
        rows = ", ".join(f"({n}, {value})" for n, value in enumerate(values))
        on_mysql.sql(f"INSERT INTO t VALUES {rows}")
        logged = {row["id"]: row["v"] for row in log.covered().rows(on_mysql.table)}
        table, keys = TableId.parse(on_mysql.table), [(str(n),) for n in range(4)]
        with contextlib.closing(log.source.chunks()) as chunks:
            for chunk in (chunks.read(table, None, ("9",), 9), chunks.read_keys(table, keys)):
                found = chunk.rows.to_pydict()
                assert dict(zip(found["id"], found["v"], strict=True)) == logged


def test_images_that_are_no_rows_are_refused() -> None:
    assert cells_of(b"", 0) == []
    assert cells_of(b"N", 1) == [None]
    assert cells_of(b"N0:3:a:1", 3) == [None, b"", b"a:1"]
    for broken in (b"", b"x", b"1", b"1:", b"1:ab", b":a", b"-1:a", b"NN", b"2:a"):
        with pytest.raises(ProtocolError):
            cells_of(broken, 1)


# -- the snapshot ---------------------------------------------------------------------------------


@req("D117")
def test_what_commits_while_a_tick_is_written_down_is_not_half_in_it(
    on_mysql: MysqlServed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction becomes visible between the choice of the changes and their numbers, with some on either side."""
    on_mysql.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    with opened(on_mysql, tmp_path) as log, session(on_mysql) as writer:
        writer.execute("INSERT INTO t VALUES (1, 1)")
        on_mysql.sql("INSERT INTO t VALUES (2, 2)")
        writer.execute("INSERT INTO t VALUES (3, 3)")
        given = clock._give

        def late(*arguments: Any) -> None:
            writer.commit()
            given(*arguments)

        monkeypatch.setattr(clock, "_give", late)
        log.covered()
        monkeypatch.undo()
        log.reopen()
        rows = log.covered().rows(on_mysql.table)
        windows = {row["id"]: row["_scn"] for row in rows}
        assert len(rows) == 3
        assert windows[2] < windows[1] == windows[3]


@req("D117", "H11")
def test_a_chunk_has_seen_just_the_ticks_up_to_its_own(
    on_mysql: MysqlServed, tmp_path: Path
) -> None:
    """Beside a writer that never rests: what the chunk shows is what the log amounts to at its place."""
    on_mysql.sql(
        "CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 0), (2, 0)"
    )
    stop = threading.Event()

    def write() -> None:
        with session(on_mysql) as writer:
            while not stop.is_set():
                writer.execute("UPDATE t SET v = v + 1 WHERE id = 1")
                writer.execute("UPDATE t SET v = v + 1 WHERE id = 2")
                writer.commit()

    with opened(on_mysql, tmp_path) as log:
        writers = [threading.Thread(target=write)]
        chunks = log.source.chunks()
        writers[0].start()
        read: list[Any] = []

        def amid() -> bool:
            # A chunk from before the first commit says nothing, and the log would have nothing to bring.
            read.append(chunks.read(TableId.parse(on_mysql.table), None, ("9",), 10))
            return len(read) >= 20 and len({str(chunk.visibility) for chunk in read}) > 5

        until(amid, "chunks at six ticks")
        stop.set()
        writers[0].join(30)
        chunks.close()
        rows = log.covered().rows(on_mysql.table)
        for chunk in read:
            seen = int(str(chunk.visibility))
            state = {1: 0, 2: 0} | {
                row["id"]: row["v"] for row in rows if row["_op"] == "+U" and row["_scn"] <= seen
            }
            cells = dict(zip(*chunk.rows.to_pydict().values(), strict=True))
            assert cells == state
            assert cells[1] == cells[2]


@req("D117")
def test_nobody_waits_for_numbers_and_numbers_wait_for_nobody(
    on_mysql: MysqlServed, tmp_path: Path
) -> None:
    """Open transactions have changes between and behind those that get a number."""
    on_mysql.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    with opened(on_mysql, tmp_path) as log, session(on_mysql) as long:
        long.execute("INSERT INTO t VALUES (0, 0)")
        on_mysql.sql("INSERT INTO t VALUES (1, 1)")
        long.execute("INSERT INTO t VALUES (2, 2)")
        striker = Striker(log.source.settings)
        with connect(log.source.settings.database) as own, striker.snapshot(own):
            # The tick is struck, and its snapshot still open.
            with session(on_mysql) as other:
                other.execute("SET innodb_lock_wait_timeout = 1")
                other.execute("INSERT INTO t VALUES (3, 3)")
                other.commit()
            long.commit()
        striker.close()
        keys = [[r[1] for r in log.covered().changes(on_mysql.table)] for _ in range(1)]
        assert keys == [[1, 0, 2, 3]]


@req("D117")
@pytest.mark.mariadb
@pytest.mark.parametrize("key", ["PRIMARY KEY", ""])
def test_a_snapshot_that_lacks_the_change_before_one_that_it_shows_is_taken_again(
    mariadb_without_log: MysqlServed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """Without a log MariaDB lists the open transactions one by one; one that waited for another may be missed alone."""
    on_mariadb = mariadb_without_log
    on_mariadb.sql(f"CREATE TABLE t (id int {key}, v int)", "INSERT INTO t VALUES (1, 0), (2, 0)")
    with opened(on_mariadb, tmp_path) as log:
        on_mariadb.sql(
            "UPDATE t SET v = 1 WHERE id = 1",
            "UPDATE t SET v = 1 WHERE id = 2",
            "UPDATE t SET v = 2 WHERE id = 1",
        )
        pieces, looks = clock._pieces, 0

        def lacking(*arguments: Any) -> Any:
            """At first as if the first change were not committed, then as if the second were not."""
            nonlocal looks
            looks += 1
            for ids in pieces(*arguments):
                yield [id_ for place, id_ in enumerate(ids) if place != looks - 1]

        monkeypatch.setattr(clock, "_pieces", lacking)
        first = log.collect().changes(on_mariadb.table)
        # What nothing rests on may be missing.
        assert first == [("-U", 1, 0), ("+U", 1, 1), ("-U", 1, 1), ("+U", 1, 2)]
        assert looks == 2
        monkeypatch.undo()
        assert log.covered().changes(on_mariadb.table)[-2:] == [("-U", 2, 0), ("+U", 2, 1)]


# -- shapes ---------------------------------------------------------------------------------------


def looked(
    log: TriggerLog, known: dict[str, CatalogEntry], settled: tuple[TableId, ...] = ()
) -> Any:
    chunks = log.source.chunks()
    try:
        return chunks.look(known, settled, frozenset())
    finally:
        chunks.close()


@req("D114")
@pytest.mark.parametrize(
    ("alter", "row", "emptied"),
    [
        ("ALTER TABLE t ADD COLUMN w int DEFAULT 5", "(2, 2, 2)", False),
        ("ALTER TABLE t DROP COLUMN v", "(2)", False),
        ("ALTER TABLE t RENAME COLUMN v TO w", "(2, 2)", False),
        ("TRUNCATE TABLE t", "(2, 2)", True),
    ],
)
def test_a_table_that_is_not_what_its_triggers_were_made_for_is_copied_again(
    on_mysql: MysqlServed, tmp_path: Path, alter: str, row: str, emptied: bool
) -> None:
    """Its writers never fail meanwhile, and from the look on each change has the shape of its time."""
    on_mysql.sql("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)")
    table = TableId.parse(on_mysql.table)
    with opened(on_mysql, tmp_path) as log:
        first = looked(log, {}, (table,))
        assert set(first.tables) == {on_mysql.table}
        assert looked(log, first.tables).restated == frozenset()
        on_mysql.sql(alter, f"INSERT INTO t VALUES {row}")
        second = looked(log, first.tables)
        assert second.restated == {on_mysql.table}
        assert looked(log, second.tables).restated == frozenset()
        # Had we died before that was noted, the next look would say it again.
        assert looked(log, first.tables).restated == {on_mysql.table}
        on_mysql.sql("UPDATE t SET id = 3 WHERE id = 2")
        collected = log.covered()
        truncates = [e for e in collected.events if e.kind is SystemKind.TRUNCATE]
        # Where the engine wrote the table anew, nobody can say whether it was emptied.
        assert truncates or not emptied
        wanted = on_mysql.query("SELECT * FROM t WHERE id = 3")
        assert [("+U", *cells) for cells in wanted] == collected.changes(on_mysql.table)[-1:]


@req("D114")
def test_a_column_that_went_and_came_back_between_two_looks_is_noticed(
    on_mysql: MysqlServed, tmp_path: Path
) -> None:
    on_mysql.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    with opened(on_mysql, tmp_path) as log:
        first = looked(log, {}, (TableId.parse(on_mysql.table),))
        on_mysql.sql(
            "ALTER TABLE t DROP COLUMN v",
            "INSERT INTO t VALUES (1)",
            "ALTER TABLE t ADD COLUMN v int",
        )
        assert log.collect().changes(on_mysql.table) == []
        second = looked(log, first.tables)
        assert second.restated == {on_mysql.table}
        assert looked(log, second.tables).restated == frozenset()


@req("D114")
@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE t MODIFY g int AS (id * 3) VIRTUAL AFTER id"],
        ["ALTER TABLE t DROP COLUMN v, ADD COLUMN v int"],
        ["ALTER TABLE t DROP COLUMN v", "ALTER TABLE t ADD COLUMN v int"],
    ],
    ids=["computed otherwise", "at once", "one after the other"],
)
def test_rows_that_got_other_values_in_the_same_columns_are_copied_again(
    on_mysql: MysqlServed, tmp_path: Path, statements: list[str]
) -> None:
    """No trigger fires, nothing is written meanwhile, and the engine does not write the table anew."""
    if len(statements) > 1 or "DROP" in statements[0]:
        on_mysql_itself(on_mysql)
    on_mysql.sql(
        "CREATE TABLE t (id int PRIMARY KEY, g int AS (id * 2) VIRTUAL, v int)",
        "INSERT INTO t (id, v) VALUES (1, 1)",
    )
    with opened(on_mysql, tmp_path) as log:
        first = looked(log, {}, (TableId.parse(on_mysql.table),))
        assert looked(log, first.tables).restated == frozenset()
        on_mysql.sql(*statements)
        second = looked(log, first.tables)
        assert second.restated == {on_mysql.table}
        assert looked(log, second.tables).restated == frozenset()


def on_mysql_itself(served: MysqlServed) -> None:
    if not is_mysql(served.server):
        pytest.skip("MariaDB does not say that columns came and went")


@req("D114")
@pytest.mark.parametrize(
    ("statements", "told"),
    [
        (["ALTER TABLE t ADD COLUMN w int", "DELETE FROM t WHERE id = 1"], []),
        (["ALTER TABLE t DROP COLUMN v"], []),
        (["ALTER TABLE t DROP COLUMN v", "DELETE FROM t WHERE id = 1"], [{"anew": True}]),
        (["ALTER TABLE t RENAME COLUMN id TO k"], [{"anew": True}] * 2),
    ],
    ids=["nothing passed by", "nobody wrote", "a delete passed by", "the key renamed"],
)
def test_a_table_begins_anew_where_changes_passed_its_triggers_by_or_its_key_is_another(
    on_mysql: MysqlServed, tmp_path: Path, statements: list[str], told: list[dict[str, bool]]
) -> None:
    on_mysql.sql("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)")
    with opened(on_mysql, tmp_path) as log:
        first = looked(log, {}, (TableId.parse(on_mysql.table),))
        # In a table that was written anew, rows might have gone.
        on_mysql.sql(*(f"{s}, ALGORITHM=INSTANT" if "ALTER" in s else s for s in statements))
        assert looked(log, first.tables).restated == {on_mysql.table}
        on_mysql.sql("DELETE FROM t")
        events = [e for e in log.covered().events if e.kind is SystemKind.TRUNCATE]
        assert [event.payload for event in events] == told


@req("D114")
def test_triggers_are_not_made_for_a_table_that_was_altered_since_it_was_looked_at(
    on_mysql: MysqlServed,
) -> None:
    on_mysql.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    source = on_mysql.source()
    source.prepare()
    table = TableId.parse(on_mysql.table)
    with connect(source.settings.database) as own:
        kept = installed.registered(own)
        seen = replace(read_layouts(own, [table], kept, set())[table], turn=1)
        on_mysql.sql("ALTER TABLE t RENAME COLUMN v TO w")
        with pytest.raises(SourceUnavailable, match="was altered since"):
            installed.install_table(own, source.settings, read_collations(own), kept[table], seen)
    assert len(on_mysql.query("SHOW TRIGGERS")) == 3


@req("D117")
def test_a_foreign_key_that_acts_is_refused_also_where_it_comes_while_changes_are_read(
    on_mysql: MysqlServed, tmp_path: Path
) -> None:
    on_mysql.sql(
        "CREATE TABLE parent (id int PRIMARY KEY)", "CREATE TABLE t (id int PRIMARY KEY, p int)"
    )
    with opened(on_mysql, tmp_path) as log:
        first = looked(log, {}, (TableId.parse(on_mysql.table),))
        on_mysql.sql("ALTER TABLE t ADD FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE")
        with pytest.raises(PreflightFailed, match="foreign-key-acts"):
            looked(log, first.tables)


@req("D117")
def test_triggers_that_somebody_took_away_are_a_loss_that_is_named(
    on_mysql: MysqlServed, tmp_path: Path
) -> None:
    on_mysql.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    with opened(on_mysql, tmp_path) as log:
        first = looked(log, {}, (TableId.parse(on_mysql.table),))
        (name, *_), *_ = on_mysql.query("SHOW TRIGGERS")
        on_mysql.sql(f"DROP TRIGGER `{name}`")
        with pytest.raises(SlotLost, match="t: what was written"):
            looked(log, first.tables)
        with pytest.raises(SlotLost, match="t: what was written"):
            log.source.prepare()
        log.source.prepare(fresh=True)
        log.source.prepare()


@req("D117")
def test_a_table_that_is_written_to_is_waited_for_briefly_and_let_go(on_mysql: MysqlServed) -> None:
    on_mysql.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    source = on_mysql.source()
    object.__setattr__(source.settings, "lock_s", 1)
    with session(on_mysql) as writer:
        writer.execute("INSERT INTO t VALUES (1, 1)")
        with pytest.raises(SourceUnavailable):
            source.prepare()
        assert on_mysql.query("SHOW TRIGGERS") == []
        writer.commit()
    source.prepare()
    assert len(on_mysql.query("SHOW TRIGGERS")) == 3


@req("D117")
def test_one_pipeline_leaves_and_the_others_triggers_stay(on_mysql: MysqlServed) -> None:
    on_mysql.sql(*(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in ("t", "u", "w")))
    name = on_mysql.database
    one = on_mysql.source(tables=(f"{name}.t", f"{name}.u"), name="one")
    two = on_mysql.source(tables=(f"{name}.u", f"{name}.w"), name="two")
    one.prepare()
    two.prepare()
    assert [table.name for table in one.remove()] == ["t"]
    assert [table.name for table in two.remove()] == ["u", "w"]
    assert on_mysql.query("SHOW DATABASES LIKE 'headrace'") == []
    assert two.remove() == []


# -- what stands in the way -----------------------------------------------------------------------


@req("D117")
@pytest.mark.parametrize("action", ["ON DELETE CASCADE", "ON UPDATE SET NULL"])
def test_foreign_keys_that_act_fire_no_trigger_and_are_refused(
    on_mysql: MysqlServed, action: str
) -> None:
    on_mysql.sql(
        "CREATE TABLE parent (id int PRIMARY KEY)",
        f"CREATE TABLE t (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES parent (id) {action})",
    )
    source = on_mysql.source()
    (finding,) = source.preflight()
    assert (finding.name, finding.table) == ("foreign-key-acts", on_mysql.table)
    with pytest.raises(PreflightFailed, match="foreign-key-acts"):
        source.prepare()
    assert on_mysql.query("SHOW TRIGGERS") == []
    on_mysql.source(exclude=(on_mysql.table,)).prepare()


@req("D117")
def test_updates_that_a_constraint_made_the_server_pass_over_are_no_changes(
    on_mysql: MysqlServed, tmp_path: Path
) -> None:
    """MariaDB fires their triggers; one of the rows came after the writer's own snapshot began."""
    on_mysql.sql(
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "INSERT INTO parent VALUES (1)",
        "CREATE TABLE t (id int PRIMARY KEY, e int UNIQUE, p int, FOREIGN KEY (p) REFERENCES parent (id))",
    )
    with opened(on_mysql, tmp_path) as log, session(on_mysql) as writer:
        writer.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        writer.execute("SELECT * FROM parent")
        on_mysql.sql("INSERT INTO t VALUES (1, 10, 1), (2, 20, 1)")
        log.collect()
        for statement in (
            "UPDATE IGNORE t SET id = 2 WHERE id = 1",
            "UPDATE IGNORE t SET e = 20 WHERE id = 1",
            "UPDATE IGNORE t SET p = 7 WHERE id = 1",
            "UPDATE IGNORE t SET id = id + 1 ORDER BY id DESC",
        ):
            writer.execute(statement)
        writer.commit()
        assert log.collect().changes(on_mysql.table) == [
            ("-U", 2, 20, 1),
            ("+U", 3, 20, 1),
            ("-U", 1, 10, 1),
            ("+U", 2, 10, 1),
        ]


@pytest.mark.parametrize("more", [", UNIQUE (v)", ") PARTITION BY HASH (v", ""])
def test_a_table_without_a_key_is_refused_where_it_has_constraints(
    on_mysql: MysqlServed, more: str
) -> None:
    on_mysql.sql(f"CREATE TABLE t (v int{more})")
    errors = [f.name for f in on_mysql.source().preflight() if f.severity is Severity.ERROR]
    assert errors == (["keyless-constrained"] if more else [])


@req("D117")
def test_what_a_plain_user_lacks_is_said_and_its_remedies_suffice(
    on_mysql: MysqlServed, tmp_path: Path
) -> None:
    server, name = on_mysql.server, on_mysql.database
    on_mysql.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    make_user(server, "keeper", f"SELECT ON {name}.*")
    source = MysqlTriggerSource(server.url(user="keeper"), (f"{name}.*",))
    try:
        names = set()
        for _ in range(6):
            errors = [f for f in source.preflight() if f.severity is Severity.ERROR]
            if not errors:
                break
            names |= {finding.name for finding in errors}
            for finding in errors:
                remedy = finding.suggestion.partition("; or let")[0].rstrip(";")
                server.execute(*remedy.split("; "))
        assert errors == []
        assert names >= {"no-process-right", "no-trigger-right", "change-tables-not-usable"}
        source.prepare()
        log = TriggerLog(source, tmp_path)
        try:
            on_mysql.sql("INSERT INTO t VALUES (1, 1)")
            assert log.collect().changes(on_mysql.table) == [("+I", 1, 1)]
        finally:
            log.close()
    finally:
        server.execute("SET GLOBAL log_bin_trust_function_creators = OFF", "DROP USER keeper@'%'")


@pytest.mark.parametrize(
    ("variable", "value", "name"),
    [
        ("read_only", "ON", "read-only"),
        ("binlog_format", "STATEMENT", "binlog-format"),
        ("max_prepared_stmt_count", "0", "max-prepared-stmt-count"),
    ],
)
def test_a_server_whose_writes_or_chunks_would_not_come_is_refused(
    on_mysql: MysqlServed, variable: str, value: str, name: str
) -> None:
    on_mysql.sql("CREATE TABLE t (id int PRIMARY KEY)")
    ((before,),) = on_mysql.query(f"SELECT @@GLOBAL.{variable}")
    on_mysql.sql(f"SET GLOBAL {variable} = {value}")
    try:
        assert name in [f.name for f in on_mysql.source().preflight()]
    finally:
        on_mysql.sql(f"SET GLOBAL {variable} = {before}")


def test_a_cluster_with_several_writers_is_refused(
    on_mysql: MysqlServed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a member of one would say of itself."""
    on_mysql.sql("CREATE TABLE t (id int PRIMARY KEY)")
    texts = Session.texts

    def told(session: Session, sql: str) -> list[tuple[str | None, ...]]:
        rows = [row for row in texts(session, sql) if row[0] != "wsrep_on"]
        return [*rows, ("wsrep_on", "ON")] if "wsrep_on" in sql else rows

    monkeypatch.setattr(Session, "texts", told)
    assert [f.name for f in on_mysql.source().preflight()] == ["several-writers"]


@req("D117")
def test_writers_need_no_right_on_the_change_tables(on_mysql: MysqlServed, tmp_path: Path) -> None:
    on_mysql.sql("CREATE TABLE t (id int PRIMARY KEY, v timestamp(6) NULL)")
    make_user(on_mysql.server, "clerk", f"INSERT ON {on_mysql.database}.*")
    with opened(on_mysql, tmp_path) as log:
        clerk = pymysql.connect(
            host="127.0.0.1",
            port=on_mysql.server.port,
            user="clerk",
            password=on_mysql.server.PASSWORD,
            database=on_mysql.database,
            autocommit=True,
        )
        with clerk, clerk.cursor() as cursor:
            cursor.execute("SET time_zone = '+03:00'")
            cursor.execute("INSERT INTO t VALUES (1, '2025-01-01 03:00:00.5')")
            cursor.execute("SELECT @@session.time_zone")
            assert cursor.fetchall() == (("+03:00",),)
        ((op, id_, value),) = log.collect().changes(on_mysql.table)
        assert (op, id_, value.isoformat()) == ("+I", 1, "2025-01-01T00:00:00.500000+00:00")


def test_keys_are_checked_row_by_row_and_keyless_tables_are_multisets(
    on_mysql: MysqlServed, tmp_path: Path
) -> None:
    on_mysql.sql("CREATE TABLE t (a int, b text)", "CREATE TABLE u (id int PRIMARY KEY)")
    with opened(on_mysql, tmp_path) as log:
        checks = {schema.table.name: schema.key_check for schema in log.source.tables()}
        assert checks == {"t": KeyCheck.NONE, "u": KeyCheck.IMMEDIATE}
        on_mysql.sql("INSERT INTO t VALUES (1, 'x'), (1, 'x')", "REPLACE INTO u VALUES (1), (1)")
        collected = log.covered()
        assert collected.changes(on_mysql.table) == [("+I", 1, "x")] * 2
        assert [row[0] for row in collected.changes(f"{on_mysql.database}.u")] == ["+I", "-D", "+I"]
        chunks = log.source.chunks()
        try:
            dump = chunks.read_table(TableId.parse(on_mysql.table))
            assert sum(batch.num_rows for batch in dump.batches) == 2
            assert int(str(dump.visibility)) == log.source.end_scn()
        finally:
            chunks.close()


@req("D117")
def test_what_is_shown_makes_what_is_installed(on_mysql: MysqlServed) -> None:
    on_mysql.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    source = on_mysql.source()
    script = source.script()
    assert on_mysql.query("SHOW TRIGGERS") == []
    statements = script.partition("DELIMITER ;;\n")[2].rpartition("\nDELIMITER ;")[0]
    connection = on_mysql.server.connect()
    with connection, connection.cursor() as cursor:
        for statement in statements.split(";;"):
            if statement.strip():
                cursor.execute(statement)
    made = [row[:4] for row in on_mysql.query("SHOW TRIGGERS")]
    assert len(made) == 3
    assert source.install() == []
    source.prepare()
    source.drop()
    source.prepare()
    assert [row[:4] for row in on_mysql.query("SHOW TRIGGERS")] == made


def test_mysql_is_what_it_says(on_mysql: MysqlServed) -> None:
    server: MysqlProtocolServer = on_mysql.server
    on_mysql.sql("CREATE TABLE t (id int PRIMARY KEY)")
    source = on_mysql.source()
    source.prepare()
    first = source.incarnation()
    assert first.startswith("MySQL" if is_mysql(server) else "MariaDB")
    assert source.departs(first, source.end_scn()) == ""
    assert "an older state" in source.departs(first, source.end_scn() + 1)
    source.drop()
    source.prepare()
    assert "numbered anew" in source.departs(first, 1)
