"""A table changes its shape between a chunk's select and its high mark, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.observe import failpoints
from headrace.sources.postgres import PostgresSource
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
    assert (copy.rows_voided, copy.rows_read) == (2, 6)
    assert selects >= 4
