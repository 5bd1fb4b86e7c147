"""A table changes its shape between a chunk's select and its high mark, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.changelog import ChangeLogReader
from headrace.model.block import SystemEvent, SystemKind
from headrace.observe import failpoints
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.ddl import TRIGGER_SQL
from tests.faults.faulty import OFTEN, at_work, follows
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = pytest.mark.postgres

MADE_ANEW = "ALTER TABLE t DROP COLUMN n, ADD COLUMN n int"
"""Name and type are those of the column before: only its number tells that it is another one."""


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


@req("A-11", "P33")
@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE t ADD COLUMN w text",
        "ALTER TABLE t ADD COLUMN w text NOT NULL DEFAULT 'filled'",
        "ALTER TABLE t ALTER COLUMN n TYPE bigint",
        MADE_ANEW,
    ],
    ids=["added", "added and filled", "widened", "made anew"],
)
def test_a_chunk_read_before_a_change_of_shape_is_void_and_read_again(
    database: str, sql: Sql, tmp_path: Path, change: str
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, n int)",
        "INSERT INTO t SELECT i, i FROM generate_series(1, 6) i",
    )
    selects = 0

    def alter() -> None:
        nonlocal selects
        selects += 1
        if selects == 2:
            # The log tells of the new shape with the next change of the table.
            sql(change, "UPDATE t SET n = -1 WHERE id = 6")

    failpoints.arm("window.after_select", alter)
    with at_work(PostgresSource(database, name="shapes"), tmp_path) as running:
        # The oracle knows columns by their names alone.
        running.judged = change != MADE_ANEW
        until(running.dumped, "the copy")
        follows(running, database)
        first = running.state.requests()[0].request_id
        (copy,) = running.state.progress(first)
    assert running.error is None
    # Chunks of two rows: the second was thrown away and read once more.
    states = {s.state: s.detail for s in running.statuses}
    assert (copy.rows_voided, copy.rows_read) == (2, 6), states
    assert selects >= 4


@req("A-11", "P33")
def test_with_the_event_trigger_no_row_has_to_follow_for_a_window_to_be_void(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """From the first look on: the trigger alone tells of the new shape, for there is no second one."""
    sql(
        TRIGGER_SQL,
        "CREATE TABLE t (id int PRIMARY KEY, n int)",
        "INSERT INTO t SELECT i, i FROM generate_series(1, 6) i",
    )
    selects = 0

    def alter() -> None:
        nonlocal selects
        selects += 1
        if selects == 2:
            sql("ALTER TABLE t ADD COLUMN w text")

    failpoints.arm("window.after_select", alter)
    source = PostgresSource(database, name="shapes", ddl="trigger")
    with at_work(source, tmp_path, dump=replace(OFTEN, look_interval_s=3_600.0)) as running:
        until(running.dumped, "the copy")
        follows(running, database)
        (copy,) = running.state.progress(running.state.requests()[0].request_id)
    assert running.error is None
    assert (copy.rows_voided, copy.rows_read) == (2, 6)


@req("P34")
def test_what_the_trigger_told_no_look_at_the_catalog_says_again(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(TRIGGER_SQL, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with at_work(PostgresSource(database, name="shapes", ddl="trigger"), tmp_path) as running:
        until(running.dumped, "the copy")
        sql("CREATE TABLE u (id int PRIMARY KEY)", "DROP TABLE t")
        until(lambda: bool(told(tmp_path)), "the drop")
        # A look that began after the drop found u.
        until(lambda: any(r.table for r in running.state.requests()), "u is captured")
        assert len(told(tmp_path)) == 1
    assert running.error is None


def told(folder: Path) -> list[SystemEvent]:
    blocks = ChangeLogReader(folder / "changelog").blocks(0)
    return [e for block in blocks for e in block.system if e.kind is SystemKind.DROP_TABLE]
