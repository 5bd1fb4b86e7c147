"""A table changes its shape between a chunk's select and its high mark, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.changelog import ChangeLogReader
from headrace.model.block import SystemEvent, SystemKind
from headrace.observe import failpoints
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.ddl import TRIGGER_SQL
from tests.faults.faulty import at_work, follows
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = pytest.mark.postgres


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
    ],
    ids=["added", "added and filled", "widened"],
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
    with at_work(PostgresSource(database, name="shapes", ddl="trigger"), tmp_path) as running:
        until(running.dumped, "the copy")
        follows(running, database)
        (copy,) = running.state.progress(running.state.requests()[0].request_id)
        # Told once, by the log, although looks at the catalog go on.
        sql("CREATE TABLE u (id int PRIMARY KEY)", "DROP TABLE t")
        until(lambda: bool(told(tmp_path)), "the drop")
        until(lambda: any(r.table for r in running.state.requests()), "u is captured")
        assert len(told(tmp_path)) == 1
    assert running.error is None
    assert (copy.rows_voided, copy.rows_read) == (2, 6)


def told(folder: Path) -> list[SystemEvent]:
    blocks = ChangeLogReader(folder / "changelog").blocks(0)
    return [e for block in blocks for e in block.system if e.kind is SystemKind.DROP_TABLE]
