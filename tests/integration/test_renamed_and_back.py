"""Tables that change their names and get them back before anybody looks, or while nobody captures.

What was written meanwhile stands in the log under other names, so such a table is copied anew. One that keeps its new
name is told of and copied once, as ever.
"""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest

from headrace.changelog import ChangeLogReader
from headrace.model.block import SystemEvent, SystemKind
from headrace.model.schema import TableId
from headrace.observe import failpoints
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.ddl import TRIGGER_SQL
from headrace.state.store import StateStore
from tests.faults.faulty import AtWork, at_work, copied, follows, through_a_change
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

T = TableId("public", "t")
GREEN = TableId("public", "green")
SWAP = (
    "ALTER TABLE t RENAME TO aside",
    "ALTER TABLE green RENAME TO t",
    "ALTER TABLE aside RENAME TO green",
)
WHILE_STOPPED = pytest.mark.parametrize(
    "stopped", [False, True], ids=["between two looks", "while stopped"]
)


def create(sql: Sql, table: str, value: str = "v") -> None:
    sql(
        f"CREATE TABLE {table} (id int PRIMARY KEY, v text)",
        f"INSERT INTO {table} SELECT n, '{value}' FROM generate_series(1, 20) n",
    )


def at_once(*statements: str) -> str:
    """Return what no look sees the middle of."""
    return "; ".join(("BEGIN", *statements, "COMMIT"))


def told(folder: Path, *kinds: SystemKind) -> list[SystemEvent]:
    blocks = ChangeLogReader(folder / "changelog").blocks(0)
    return [event for block in blocks for event in block.system if event.kind in kinds]


def copies(running: AtWork, table: TableId) -> int:
    return sum(request.table == table for request in running.state.requests())


def settled(running: AtWork) -> bool:
    """Whether nobody waits for a look any more: no table is astray, and all dumps are made."""
    return running.dumped() and running.state.get("astray") in (None, "[]")


@req("C30")
@WHILE_STOPPED
@pytest.mark.parametrize(
    ("tables", "there", "away", "back"),
    [
        ("public.*", "t2", "ALTER TABLE t RENAME TO t2", "ALTER TABLE t2 RENAME TO t"),
        ("public.*", "s.t", "ALTER TABLE t SET SCHEMA s", "ALTER TABLE s.t SET SCHEMA public"),
        ("*.*", "s.t", "ALTER TABLE t SET SCHEMA s", "ALTER TABLE s.t SET SCHEMA public"),
        ("*.*", "x.t", "ALTER SCHEMA public RENAME TO x", "ALTER SCHEMA x RENAME TO public"),
    ],
    ids=["another name", "not captured there", "captured there", "by its schema"],
)
def test_a_table_that_got_its_name_back_is_as_the_source_has_it(
    database: str,
    sql: Sql,
    tmp_path: Path,
    tables: str,
    there: str,
    away: str,
    back: str,
    stopped: bool,
) -> None:
    sql("CREATE SCHEMA s")
    create(sql, "t")
    source = PostgresSource(database, (tables,))

    def change() -> None:
        written = (f"UPDATE {there} SET v = 'x' WHERE id < 5", f"DELETE FROM {there} WHERE id = 9")
        sql(at_once(away, *written, back), "UPDATE t SET v = 'y' WHERE id = 12")

    def check(running: AtWork) -> None:
        follows(running, database, T)
        until(lambda: settled(running), "the copy")
        sql("UPDATE t SET v = 'z' WHERE id = 13")
        follows(running, database, T)

    through_a_change(source, tmp_path, change, check, stopped=stopped)
    assert [e for e in told(tmp_path, SystemKind.TRUNCATE) if e.table == T and e.payload["anew"]]


@req("C30")
@WHILE_STOPPED
def test_two_tables_that_swapped_and_swapped_back_are_as_the_source_has_them(
    database: str, sql: Sql, tmp_path: Path, stopped: bool
) -> None:
    create(sql, "t")
    create(sql, "green", "g")

    def change() -> None:
        written = ("UPDATE t SET v = 'new' WHERE id = 3", "INSERT INTO t VALUES (77, 'green')")
        sql(at_once(*SWAP, *written, *SWAP), "UPDATE t SET v = 'y' WHERE id = 12")

    def check(running: AtWork) -> None:
        follows(running, database, T)
        follows(running, database, GREEN)

    through_a_change(PostgresSource(database), tmp_path, change, check, stopped=stopped)


@req("C30")
@WHILE_STOPPED
def test_a_table_whose_name_another_had_is_as_the_source_has_it(
    database: str, sql: Sql, tmp_path: Path, stopped: bool
) -> None:
    """Nothing is written to it itself meanwhile, and to the other, which is published by others, much."""
    create(sql, "t")
    create(sql, "green", "g")
    sql("CREATE PUBLICATION everything FOR ALL TABLES")

    def change() -> None:
        written = ("UPDATE t SET v = 'new' WHERE id = 3", "INSERT INTO t VALUES (77, 'green')")
        sql(at_once(*SWAP, *written, *SWAP))

    source = PostgresSource(database, exclude=("public.green",), publication="everything")
    through_a_change(
        source, tmp_path, change, lambda running: follows(running, database, T), stopped=stopped
    )


class Crash(BaseException):
    """The process dies here."""


@req("C30", "H10")
@pytest.mark.parametrize("ddl", ["catalog", "trigger"])
def test_a_death_before_the_look_forgets_no_table_that_was_astray(
    database: str, sql: Sql, tmp_path: Path, ddl: Literal["catalog", "trigger"]
) -> None:
    """The source was told that all of that was read, and will not bring it again."""
    create(sql, "t")
    if ddl == "trigger":
        sql(TRIGGER_SQL)
    source, died = PostgresSource(database, ddl=ddl), threading.Event()

    def die() -> None:
        with closing(StateStore(tmp_path / "state.db")) as state:
            if state.get("astray") in (None, "[]"):
                return
        died.set()
        raise Crash

    try:
        with at_work(source, tmp_path) as running:
            until(running.dumped, "the first copy")
            failpoints.arm("capture.after_acknowledge", die)
            sql(
                at_once(
                    "ALTER TABLE t RENAME TO t2",
                    "DELETE FROM t2 WHERE id = 9",
                    "ALTER TABLE t2 RENAME TO t",
                )
            )
            until(died.is_set, "the death")
    finally:
        failpoints.disarm()
    assert isinstance(running.error, Crash)
    with at_work(source, tmp_path) as running:
        follows(running, database, T)
        until(lambda: settled(running), "the copy")
    assert running.error is None


@req("C30")
@WHILE_STOPPED
@pytest.mark.parametrize("ddl", ["catalog", "trigger"])
def test_names_that_last_are_told_of_and_copied_once(
    database: str, sql: Sql, tmp_path: Path, ddl: Literal["catalog", "trigger"], stopped: bool
) -> None:
    names = [TableId("public", name) for name in ("one", "two", "now")]
    for name in ("one", "two", "before"):
        create(sql, name, name)
    if ddl == "trigger":
        sql(TRIGGER_SQL)
    source = PostgresSource(database, ddl=ddl)
    change = at_once(
        "ALTER TABLE one RENAME TO three",
        "ALTER TABLE two RENAME TO one",
        "ALTER TABLE three RENAME TO two",
        "ALTER TABLE before RENAME TO now",
        "CREATE TABLE three (id int PRIMARY KEY, v text)",
        *(f"UPDATE {table.name} SET v = 'changed' WHERE id < 3" for table in names),
        "INSERT INTO three VALUES (1, 'x')",
    )
    every = [*names, TableId("public", "three")]

    def is_copied(running: AtWork) -> bool:
        return all(copies(running, table) for table in every) and settled(running)

    if stopped:
        copied(source, tmp_path)
        sql(change)
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        if not stopped:
            sql(change)
        until(lambda: is_copied(running), "the copies")
        for table in every:
            follows(running, database, table)
        sql(*(f"DELETE FROM {table.name} WHERE id = 1" for table in every))
        for table in every:
            follows(running, database, table)
    assert running.error is None
    with at_work(source, tmp_path) as running:
        sql("UPDATE now SET v = 'again'", "UPDATE one SET v = 'again'")
        for table in every:
            follows(running, database, table)
        assert [copies(running, table) for table in every] == [1, 1, 1, 1]
        renamed = [(str(e.table), e.payload["to"]) for e in told(tmp_path, SystemKind.RENAME_TABLE)]
        if ddl == "catalog":
            assert sorted(renamed) == [
                ("public.before", "public.now"),
                ("public.one", "public.two"),
                ("public.two", "public.one"),
            ]
    assert running.error is None
