"""A captured table, or a partition of one, gets out of the server's log: the capture stops by name.

Where nobody looked meanwhile the table is copied anew.
"""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from headrace.changelog import ChangeLogReader
from headrace.errors import SourceError
from headrace.model.block import SystemKind
from headrace.sources.postgres import PostgresSource
from tests.faults.faulty import (
    PUBLIC_T,
    AtWork,
    at_work,
    failure_of,
    follows,
    named,
    through_a_change,
)
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

PLAIN = ("CREATE TABLE t (id int PRIMARY KEY)",)
PARTED = (
    "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
    "CREATE TABLE p PARTITION OF t FOR VALUES FROM (0) TO (100)",
)
ALL = "CREATE PUBLICATION theirs FOR ALL TABLES WITH (publish_via_partition_root = true)"

WAYS = {
    "a table": (PLAIN, ALL, "ALTER TABLE t SET UNLOGGED", "public.t is unlogged"),
    "a partition": (PARTED, "", "ALTER TABLE p SET UNLOGGED", "Partition public.p of public.t"),
    "one that is attached": (
        PARTED,
        "",
        "CREATE UNLOGGED TABLE q PARTITION OF t FOR VALUES FROM (100) TO (200)",
        "Partition public.q of public.t",
    ),
}


@req("C30")
@pytest.mark.parametrize("way", WAYS)
def test_what_gets_out_of_the_log_stops_the_capture_by_name(
    database: str, sql: Sql, tmp_path: Path, way: str
) -> None:
    tables, publication, statement, said = WAYS[way]
    sql(*tables, *filter(None, [publication]), "INSERT INTO t VALUES (1)")
    source = PostgresSource(database, ["public.t"], publication="theirs" if publication else None)
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        sql(statement)
        error = named(failure_of(running), SourceError, said)
        assert "SET LOGGED" in error.next_step
        assert "headrace resync FILE" in error.next_step


TEXTS = ("CREATE TABLE t (id int PRIMARY KEY, v text)",)
PARTED_TEXTS = (
    "CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE p PARTITION OF t FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE q PARTITION OF t FOR VALUES FROM (100) TO (200)",
)
SCHEMA = "CREATE PUBLICATION theirs FOR TABLES IN SCHEMA public"
UNSEEN = {
    "a table": (TEXTS, ALL, "t"),
    "one that is published by its schema": (TEXTS, SCHEMA, "t"),
    "a partition": (PARTED_TEXTS, "", "p"),
}


def older(database: str, version: int) -> bool:
    """Return whether the server is older than a major version."""
    with psycopg.connect(database) as session:
        return session.info.server_version < version * 10_000


def capturable(way: str, database: str, sql: Sql) -> tuple[PostgresSource, str]:
    """Make a table of two rows; return its source, and what of it can get out of the log."""
    tables, publication, part = UNSEEN[way]
    if publication == SCHEMA and older(database, 15):
        pytest.skip("publications hold schemas from 15 on")
    sql(*tables, *filter(None, [publication]), "INSERT INTO t VALUES (1, 'a'), (2, 'a')")
    theirs = "theirs" if publication else None
    return PostgresSource(database, ["public.t"], publication=theirs), part


def emptied(folder: Path) -> int:
    """Return how often the stream says that the table is empty."""
    return sum(
        event.kind is SystemKind.TRUNCATE and event.table == PUBLIC_T
        for block in ChangeLogReader(folder / "changelog").blocks(0)
        for event in block.system
    )


def check_following(running: AtWork, database: str, sql: Sql) -> None:
    """Check that the log amounts to the table, by now and after more changes."""
    follows(running, database)
    until(running.dumped, "the copy")
    sql("INSERT INTO t (id, v) VALUES (3, 'c')", "UPDATE t SET v = 'd' WHERE id = 1")
    follows(running, database)


@req("C30")
@pytest.mark.parametrize("stopped", [False, True], ids=["between two looks", "while stopped"])
@pytest.mark.parametrize("way", UNSEEN)
def test_a_table_that_was_unlogged_for_a_while_is_copied_anew(
    database: str, sql: Sql, tmp_path: Path, way: str, stopped: bool
) -> None:
    """Nobody looked meanwhile, and afterwards it is what it was before."""
    source, part = capturable(way, database, sql)
    statements = [
        f"ALTER TABLE {part} SET UNLOGGED",
        "UPDATE t SET v = 'b' WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
        f"ALTER TABLE {part} SET LOGGED",
    ]
    if not stopped:
        statements = ["; ".join(("BEGIN", *statements, "COMMIT"))]
    through_a_change(
        source,
        tmp_path,
        lambda: sql(*statements),
        lambda running: check_following(running, database, sql),
        stopped=stopped,
    )
    assert emptied(tmp_path) == 1


@req("C30")
def test_a_table_that_was_unlogged_more_than_once_is_copied_each_time(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    source, part = capturable("a partition", database, sql)
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
    for times, name in enumerate([part, "q", part], start=1):
        sql(
            f"ALTER TABLE {name} SET UNLOGGED",
            "UPDATE t SET v = v || 'b'",
            f"INSERT INTO t VALUES (100 + {times}, 'e')",
            f"ALTER TABLE {name} SET LOGGED",
        )
        with at_work(source, tmp_path) as running:
            running.judged = False
            follows(running, database)
        assert emptied(tmp_path) == times


WRITTEN_ANEW = {
    "maintenance": (
        "VACUUM FULL {0}",
        "CLUSTER {0} USING {0}_pkey",
        "GRANT SELECT ON {0} TO public",
    ),
    "a column that comes with its values": ("ALTER TABLE t ADD w float DEFAULT random()",),
    "another type": ("ALTER TABLE t ALTER v TYPE varchar(9000) USING v || 'x'",),
    "another type of partitions written anew before": (
        "VACUUM FULL t",
        "ALTER TABLE t ALTER v TYPE varchar(9000) USING v || 'x'",
    ),
    "all its rows go": ("DELETE FROM t", "VACUUM FULL {0}"),
}


@req("C30")
@pytest.mark.parametrize("before", [False, True], ids=["never before", "unlogged before"])
@pytest.mark.parametrize("statements", WRITTEN_ANEW.values(), ids=WRITTEN_ANEW.keys())
@pytest.mark.parametrize("way", ["a table", "a partition"])
def test_a_table_is_not_emptied_for_what_else_writes_its_rows_anew(
    database: str,
    sql: Sql,
    tmp_path: Path,
    way: str,
    statements: tuple[str, ...],
    before: bool,
) -> None:
    source, part = capturable(way, database, sql)
    if before:
        sql(f"ALTER TABLE {part} SET UNLOGGED", f"ALTER TABLE {part} SET LOGGED")
    through_a_change(
        source,
        tmp_path,
        lambda: sql(*(statement.format(part) for statement in statements)),
        lambda running: check_following(running, database, sql),
        stopped=True,
    )
    assert emptied(tmp_path) == 0


@req("C30")
def test_a_table_that_a_publication_lists_cannot_have_been_unlogged(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """So it is not copied for tools that write it anew as only becoming unlogged would otherwise."""
    if older(database, 15):
        pytest.skip("tables change their access method from 15 on")
    sql(*TEXTS, "CREATE ACCESS METHOD same TYPE TABLE HANDLER heap_tableam_handler")
    through_a_change(
        PostgresSource(database),
        tmp_path,
        lambda: sql("ALTER TABLE t SET ACCESS METHOD same"),
        lambda running: check_following(running, database, sql),
        stopped=True,
    )
    assert emptied(tmp_path) == 0
