"""A change of shape that the log tells of and no select sees yet, on a real server.

The ALTER TABLE hangs between its place in the log, where the event trigger tells of it, and its visibility. A chunk
that begins meanwhile describes the old shape, waits for the table's lock, and gets its rows once the change is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import psycopg
import pytest

from headrace.changelog import ChangeLogReader
from headrace.model.block import SystemKind
from headrace.model.schema import TableId
from headrace.observe import failpoints
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.ddl import TRIGGER_SQL
from headrace.state.records import RESTING
from headrace.testing.postgres import EmbeddedPostgres
from headrace.watermark.settings import DumpSettings
from tests.integration.hung_commits import HungCommit
from tests.integration.running import Running, running_capture
from tests.requirements import req
from tests.waiting import until
from tests.watermark.steering import pause, resume

pytestmark = pytest.mark.postgres
TABLE = TableId("public", "t")
OLD, NEW = ["id", "n"], ["id", "n", "w"]


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


def shapes(running: Running) -> list[list[str]]:
    """Return the columns of each version that the log says the table has, in its order."""
    blocks = ChangeLogReader(running.folder / "changelog").blocks(0)
    events = [e for block in blocks for e in block.system]
    told = [e for e in events if e.kind is SystemKind.SCHEMA and e.table == TABLE]
    return [list(running.registry.get(e.payload["schema_id"]).names) for e in told]


@req("A-11", "P33", "P49")
def test_a_chunk_of_the_old_shape_is_void_when_the_log_told_of_the_new_one_before_it_began(
    tmp_path: Path,
) -> None:
    with EmbeddedPostgres() as server:
        url = server.create_database("shop")
        local = psycopg.connect(url, autocommit=True)
        local.execute(TRIGGER_SQL.encode())
        local.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
        local.execute("INSERT INTO t SELECT i, i FROM generate_series(1, 4) i")
        # No second look at the catalog: it would find the change, too.
        dump = DumpSettings(chunk_rows=2, request_interval_s=0.0, look_interval_s=3_600.0)
        source = PostgresSource(url, name="gap", ddl="trigger")

        def copy() -> str:
            return running.state.requests()[0].request_id

        def once() -> None:
            failpoints.disarm("window.after_select")
            pause(running.state, copy())

        failpoints.arm("window.after_select", once)
        with running_capture(source, tmp_path, dump) as running:
            until(lambda: running.state.get(RESTING), "it rests behind the first chunk")
            hung = HungCommit(url, "ALTER TABLE t ADD COLUMN w text")
            until(lambda: NEW in shapes(running), "the log tells of the new shape")
            resume(running.state, copy())
            until(lambda: waits_for_a_lock(local), "the second chunk waits for the table")
            hung.let_go()
            until(running.dumped, "the copy")
            (progress,) = running.state.progress(copy())
            wanted = Counter(local.execute("SELECT * FROM t").fetchall())
            assert running.content(TABLE) == wanted
        local.close()
    assert (progress.rows_voided, progress.rows_read) == (2, 4)
    # The change log never goes back to the old shape.
    assert [shape for shape, _ in groupby(shapes(running))] == [OLD, NEW]


def waits_for_a_lock(session: psycopg.Connection) -> bool:
    """Whether the rows of a chunk cannot be read yet."""
    return bool(
        session.execute(
            "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'COPY (%'"
        ).fetchall()
    )
