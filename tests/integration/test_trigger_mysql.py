"""A capture by triggers of a real MariaDB and MySQL: dumps among changes, restarts, and what comes of it."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymysql.cursors import Cursor

from headrace.changelog.reader import ChangeLogReader
from headrace.model.schema import TableId
from headrace.observe import failpoints
from headrace.sources.trigger.mysql import MysqlTriggerSource
from headrace.state.records import Scope
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from headrace.watermark.settings import DumpSettings
from tests.fixtures_binlog import Sql, database, mariadb_server, mysql_server, server, sql
from tests.integration.binlog import Writer, go_on, in_source, shopping, writing
from tests.integration.running import Running, running_capture
from tests.requirements import req
from tests.waiting import until

__all__ = ["database", "mariadb_server", "mysql_server", "server", "sql"]

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


@pytest.fixture
def source(server: MysqlProtocolServer, database: str) -> Iterator[MysqlTriggerSource]:
    yield MysqlTriggerSource(server.url(), (f"{database}.*",), name=database, poll_s=0.01)
    server.execute("DROP DATABASE IF EXISTS headrace")


def caught_up(running: Running, source: MysqlTriggerSource) -> None:
    """Return when every dump is done and the change log has all that is committed by now."""
    end = source.end_scn()
    until(lambda: running.dumped() and running.reader.tail().covered_scn >= end, "all of the log")


def told(running: Running, table: TableId) -> bool:
    """Return whether the change log has a row of a table."""
    blocks = ChangeLogReader(running.folder / "changelog").blocks(0)
    return any(body.table == table for block in blocks for body in block.bodies)


@req("D117", "H11")
def test_a_dump_among_changes_leaves_the_sources_table(
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    source: MysqlTriggerSource,
    tmp_path: Path,
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v int, b text)",
        "INSERT INTO t SELECT seq, 0, 'first' FROM seq_1_to_240",
    )
    table = TableId(database, "t")
    shops = [
        Writer(server, database, seed, functools.partial(shopping, seed=seed), rest_s=0.004)
        for seed in range(4)
    ]
    # Each chunk has changes beside it, however slow the writers are.
    failpoints.arm("window.after_select", lambda: go_on(shops))
    with running_capture(source, tmp_path, DumpSettings(chunk_rows=17)) as running:
        with writing(*shops):
            until(running.dumped, "the dump of all tables")
            failpoints.disarm()
        caught_up(running, source)
        assert running.content(table) == in_source(server, table)
        assert sum(shop.done for shop in shops) > 20


def waiting(cursor: Cursor, rng: random.Random, done: int, seed: int) -> None:
    """Change rows that everybody changes, each waiting for the others' commits."""
    cursor.execute("BEGIN")
    for key in sorted(rng.sample(range(1, 31), rng.randint(1, 4))):
        cursor.execute(
            f"UPDATE t SET b = CONCAT(LEFT(b, 20), '{seed}'), v = {done} WHERE id = {key}"
        )
    cursor.execute(rng.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK")))


@req("D117")
def test_overlapping_writers_beside_dumps_end_exact_over_a_restart(
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    source: MysqlTriggerSource,
    tmp_path: Path,
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v int, b text)",
        "INSERT INTO t SELECT seq, 0, '' FROM seq_1_to_30",
    )
    table = TableId(database, "t")
    writers = [
        Writer(server, database, seed, functools.partial(waiting, seed=seed), rest_s=0.02)
        for seed in range(4)
    ]
    with writing(*writers):
        for _ in range(2):
            with running_capture(source, tmp_path, DumpSettings(chunk_rows=10)) as running:
                running.state.submit(Scope.TABLE, table)
                until(running.dumped, "a dump")
    with running_capture(source, tmp_path, DumpSettings(chunk_rows=10)) as running:
        caught_up(running, source)
        assert running.content(table) == in_source(server, table)


@req("D114", "D117")
def test_a_table_that_is_emptied_altered_or_new_ends_as_at_the_source(
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    source: MysqlTriggerSource,
    tmp_path: Path,
) -> None:
    """None of it fires a trigger."""
    sql("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    table, fresh = TableId(database, "t"), TableId(database, "fresh")
    with running_capture(
        source, tmp_path, DumpSettings(chunk_rows=100, look_interval_s=0.1)
    ) as running:
        running.judged = False

        def follows(one: TableId) -> None:
            wanted = in_source(server, one)
            until(
                lambda: told(running, one) and running.content(one) == wanted,
                f"{one} is as at the source",
            )

        caught_up(running, source)
        sql("TRUNCATE TABLE t", "INSERT INTO t VALUES (3, 3)")
        follows(table)
        sql("ALTER TABLE t ADD COLUMN w int DEFAULT 7", "INSERT INTO t VALUES (4, 4, 4)")
        follows(table)
        sql("CREATE TABLE fresh (id int PRIMARY KEY)", "INSERT INTO fresh VALUES (1), (2)")
        follows(fresh)
        sql("DELETE FROM fresh WHERE id = 1", "INSERT INTO fresh VALUES (3)")
        follows(fresh)


MIGRATIONS = {
    "the key renamed": [
        "ALTER TABLE t RENAME COLUMN id TO k",
        "DELETE FROM t WHERE k = 1",
        "UPDATE t SET k = 9 WHERE k = 2",
    ],
    "names changed places": [
        "ALTER TABLE t RENAME COLUMN id TO v, RENAME COLUMN v TO id",
        "INSERT INTO t VALUES (50, 60)",
        "DELETE FROM t WHERE v = 1",
    ],
    "the key of another type": ["ALTER TABLE t MODIFY id varchar(9)", "DELETE FROM t WHERE id = 1"],
    "another key": [
        "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (v)",
        "DELETE FROM t WHERE id = 1",
        "UPDATE t SET v = 9 WHERE id = 2",
    ],
    "another column renamed": [
        "ALTER TABLE t RENAME COLUMN v TO w",
        "DELETE FROM t WHERE id = 1",
        "UPDATE t SET id = 9 WHERE id = 2",
    ],
    "a column dropped": ["ALTER TABLE t DROP COLUMN v", "DELETE FROM t WHERE id = 1"],
}


@req("D114", "D117")
@pytest.mark.parametrize("migration", MIGRATIONS)
def test_rows_that_go_while_their_triggers_are_for_another_table_leave_the_copy(
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    source: MysqlTriggerSource,
    tmp_path: Path,
    migration: str,
) -> None:
    """What is written between a migration and the look that finds it is in no change, or under keys of before."""
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL)",
        "INSERT INTO t VALUES (1, 11), (2, 12), (3, 13)",
    )
    table = TableId(database, "t")
    with running_capture(
        source, tmp_path, DumpSettings(chunk_rows=100, look_interval_s=0.1)
    ) as running:
        running.judged = False
        caught_up(running, source)
        sql(*MIGRATIONS[migration])
        wanted = in_source(server, table)
        until(lambda: running.content(table) == wanted, "the table as the source has it")


@req("D117", "D131")
def test_a_queues_copy_has_every_event_and_the_queue_none_that_was_delivered(
    server: MysqlProtocolServer, database: str, sql: Sql, tmp_path: Path
) -> None:
    """Before and behind the first copy, over a restart, and also those that the application removes itself."""
    sql("CREATE TABLE outbox (id int PRIMARY KEY, v int)")
    source = MysqlTriggerSource(
        server.url(),
        (f"{database}.*",),
        name=database,
        poll_s=0.01,
        queues=(f"{database}.outbox",),
        queue_rows="delete",
    )
    table = TableId(database, "outbox")
    try:
        source.prepare()
        for turn in range(2):
            with running_capture(source, tmp_path) as running:
                for n in range(20):
                    key = 100 * turn + n
                    sql(f"INSERT INTO outbox VALUES ({key}, {n})")
                    if n % 5 == 0:
                        sql(f"DELETE FROM outbox WHERE id = {key}")
                caught_up(running, source)
                until(lambda: not in_source(server, table), "what was delivered is removed")
        wanted = {(100 * turn + n, n) for turn in range(2) for n in range(20)}
        assert set(running.content(table)) == wanted
    finally:
        server.execute("DROP DATABASE IF EXISTS headrace")
