"""Tables of a real server change shape, or place with another, between a chunk's select and its high mark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.changelog import ChangeLogReader
from headrace.model.block import SystemKind
from headrace.model.schema import TableId
from headrace.observe import failpoints
from headrace.sources.mysql import MysqlSource
from headrace.state.records import OPEN, Scope
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from tests.binlog_servers import is_mysql
from tests.faults.faulty import AtWork, at_work
from tests.fixtures_binlog import (
    Sql,
    database,
    mariadb_server,
    mysql_server,
    server,
    source,
    sql,
)
from tests.integration.binlog import in_source
from tests.requirements import req
from tests.waiting import until

__all__ = ["database", "mariadb_server", "mysql_server", "server", "source", "sql"]


SHAPES = {
    "added": ["ALTER TABLE t ADD COLUMN w text", "UPDATE t SET n = -1 WHERE id = 6"],
    "added and filled": [
        "ALTER TABLE t ADD COLUMN w varchar(9) NOT NULL DEFAULT 'filled'",
        "UPDATE t SET n = -1 WHERE id = 6",
    ],
    "widened": ["ALTER TABLE t MODIFY n bigint", "UPDATE t SET n = -1 WHERE id = 6"],
    "renamed column": ["ALTER TABLE t RENAME COLUMN n TO m", "UPDATE t SET m = -1 WHERE id = 6"],
    "dropped column": ["ALTER TABLE t DROP COLUMN n", "DELETE FROM t WHERE id = 1"],
    "moved column": ["ALTER TABLE t MODIFY n int FIRST", "UPDATE t SET n = -1 WHERE id = 6"],
    # As tools do that change a table beside it; nobody writes to it afterwards.
    "changed places": ["RENAME TABLE t TO t_old, beside TO t"],
    "made anew": [
        "RENAME TABLE t TO t_old",
        "CREATE TABLE t (id int PRIMARY KEY, n int)",
        "INSERT INTO t VALUES (2, 20), (9, 90)",
    ],
    "dropped and made": [
        "DROP TABLE t",
        "CREATE TABLE t (id int PRIMARY KEY, s text)",
        "INSERT INTO t VALUES (2, 'x')",
    ],
    "replaced": ["CREATE OR REPLACE TABLE t AS SELECT id, n + 1 AS n FROM beside"],
}

ALWAYS = ("added and filled", "changed places", "dropped and made")


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


def settled(running: AtWork, server: MysqlProtocolServer, *tables: TableId) -> None:
    """Return when nothing is left to dump and the change log amounts to the tables."""
    until(
        lambda: (
            not any(request.state in OPEN for request in running.state.requests())
            and all(running.holds(table, in_source(server, table)) for table in tables)
        ),
        f"{', '.join(map(str, tables))} as the source has them",
    )
    assert running.error is None


def whole(folder: Path, table: TableId) -> bool:
    """Whether a dump of a table ended behind the last place where the table began anew."""
    begun = ended = 0
    for block in ChangeLogReader(folder / "changelog").blocks(0):
        for event in block.system:
            if event.table == table and event.payload.get("anew"):
                begun = event.scn
            if event.table == table and event.kind is SystemKind.DUMP_COMPLETE:
                ended = event.scn
    return ended > begun


@req("A-11", "P33", "P34", "F12")
@pytest.mark.parametrize(
    "name",
    [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.long) for name in SHAPES],
)
def test_a_table_that_changes_inside_a_window_ends_as_at_the_source(
    name: str,
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    source: MysqlSource,
    tmp_path: Path,
) -> None:
    if name == "replaced" and is_mysql(server):
        pytest.skip("MySQL does not know CREATE OR REPLACE TABLE")
    table = TableId(database, "t")
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, n int)",
        "INSERT INTO t SELECT seq, seq FROM seq_1_to_6",
        "CREATE TABLE beside (id int PRIMARY KEY, n int)",
        "INSERT INTO beside SELECT seq, 10 * seq FROM seq_2_to_9",
    )
    selects = 0

    def change() -> None:
        nonlocal selects
        selects += 1
        if selects == 2:
            sql(*SHAPES[name])

    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        failpoints.arm("window.after_select", change)
        running.state.submit(Scope.TABLE, table)
        until(lambda: selects > 2 or running.error, "the change")
        settled(running, server, table)
        until(lambda: whole(tmp_path, table), "a dump of the table as it is now")
        if name in ("changed places", "made anew"):
            settled(running, server, TableId(database, "t_old"))
            until(lambda: whole(tmp_path, TableId(database, "t_old")), "a dump of the old one")


@req("P33", "F12")
def test_tables_that_come_while_a_capture_runs_are_dumped_and_those_that_go_are_given_up(
    server: MysqlProtocolServer, database: str, sql: Sql, source: MysqlSource, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT seq FROM seq_1_to_6")
    gone = threading.Event()

    def drop() -> None:
        if not gone.is_set():
            gone.set()
            sql("DROP TABLE t")

    fresh, moved = TableId(database, "fresh"), TableId(database, "moved")
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        sql("CREATE TABLE fresh (id int PRIMARY KEY)", "INSERT INTO fresh VALUES (1), (2)")
        settled(running, server, fresh)
        until(lambda: whole(tmp_path, fresh), "a dump of the new table")
        failpoints.arm("window.after_select", drop)
        running.state.submit(Scope.TABLE, TableId(database, "t"))
        until(gone.is_set, "the drop")
        # Rows that nobody writes again, from where no capture looked.
        server.execute(f"CREATE DATABASE IF NOT EXISTS {database}_x")
        sql(
            f"CREATE TABLE {database}_x.m (id int PRIMARY KEY)",
            f"INSERT INTO {database}_x.m VALUES (5)",
        )
        sql(f"RENAME TABLE {database}_x.m TO moved")
        settled(running, server, fresh, moved)
        until(lambda: whole(tmp_path, moved), "a dump of the table that moved in")
        failed = [r.reason for r in running.state.requests() if r.reason]
    assert failed == [f"{database}.t was dropped or renamed."]
    # What is known by now is known to the next start.
    with at_work(source, tmp_path) as running:
        sql("INSERT INTO fresh VALUES (3)")
        settled(running, server, fresh, moved)
    server.execute(f"DROP DATABASE {database}_x")


@req("P33", "N08")
def test_a_dump_of_all_tables_leaves_out_those_that_are_gone_until_they_are_there_again(
    server: MysqlProtocolServer, database: str, sql: Sql, source: MysqlSource, tmp_path: Path
) -> None:
    kept, moved, again = (TableId(database, name) for name in ("kept", "moved", "again"))
    for name in ("kept", "moving", "dropped", "again"):
        sql(f"CREATE TABLE {name} (id int PRIMARY KEY)", f"INSERT INTO {name} VALUES (1), (2)")
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        sql("DROP TABLE dropped, again", "RENAME TABLE moving TO moved")
        settled(running, server, kept, moved)
        without = running.state.submit(Scope.ALL_TABLES)
        settled(running, server, kept, moved)
        assert read_by(running, without) == {kept, moved}
        sql("CREATE TABLE again (id int PRIMARY KEY)", "INSERT INTO again VALUES (3)")
        settled(running, server, kept, moved, again)
        with_it = running.state.submit(Scope.ALL_TABLES)
        settled(running, server, kept, moved, again)
        assert read_by(running, with_it) == {kept, moved, again}
        assert [r.reason for r in running.state.requests() if r.reason] == []


def read_by(running: AtWork, request_id: str) -> set[TableId]:
    """Return the tables that a dump has read whole."""
    return {p.table for p in running.state.progress(request_id) if p.state == "done"}
