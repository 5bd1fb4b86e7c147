"""The largest key is fixed when a dump begins: a table that grows faster than it is read is done all the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.model.schema import TableId
from headrace.observe import failpoints
from headrace.sources.postgres import PostgresSource
from headrace.watermark.settings import DumpSettings
from tests.fixtures_postgres import Sql
from tests.integration.running import running_capture
from tests.integration.selected import rows_by_origin
from tests.requirements import req
from tests.waiting import until

pytestmark = pytest.mark.postgres

T = TableId("public", "t")
ROWS, CHUNK, MORE = 40, 10, 25


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


@req("P12", "P46")
def test_a_table_that_grows_faster_than_it_is_read_is_read_to_its_first_end(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY)",
        f"INSERT INTO t SELECT generate_series(1, {ROWS})",
    )
    ends = itertools.count(ROWS, MORE)

    def grow() -> None:
        end = next(ends)
        assert end < 100 * ROWS, "the dump runs after the table's end"
        sql(f"INSERT INTO t SELECT generate_series({end + 1}, {end + MORE})")

    # In every window, behind its select, come more rows than a chunk has.
    failpoints.arm("window.after_select", grow)
    source, dump = PostgresSource(database), DumpSettings(chunk_rows=CHUNK)
    with running_capture(source, tmp_path, dump) as running:
        until(running.dumped, "the dump")
        (progress,) = running.state.progress(running.state.requests()[0].request_id)
        failpoints.disarm()
        end = next(ends)
        until(lambda: running.content(T).total() == end, "every row")
    assert (progress.until, progress.chunks) == ((str(ROWS),), ROWS // CHUNK)
    _, selected = rows_by_origin(tmp_path)
    assert {row for _, _, row in selected} == {(key,) for key in range(1, ROWS + 1)}
