"""The visibility gap on a real server: a commit that is in the log, and that no select sees yet.

The same run with the plain algorithm ends with a stale row.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import psycopg
import pytest

from headrace.model.schema import TableId
from headrace.sources.base import Chunk, ReceivedMark
from headrace.sources.postgres import PostgresSource
from headrace.testing.postgres import EmbeddedPostgres
from headrace.watermark.closing import Closed, Closing, Job
from headrace.watermark.tasks import Task
from tests.integration.hung_commits import HungCommit
from tests.integration.running import Running, running_capture
from tests.requirements import req
from tests.scenarios.test_random_histories import _BeforeLow
from tests.waiting import until

pytestmark = pytest.mark.postgres
TABLE = TableId("public", "t")
UPDATE = "UPDATE t SET v = 'new' WHERE id = 1"


@pytest.fixture(params=[18, 16], ids=["pg18", "pg16"])
def ghost_server(request: pytest.FixtureRequest) -> Iterator[EmbeddedPostgres]:
    """A server of its own: the setting holds back every session's commits."""
    with EmbeddedPostgres(version=request.param) as server:
        yield server


def run_with_hung_commit(
    server: EmbeddedPostgres, watermark: Literal["message", "table"], folder: Path
) -> Running:
    """Dump a table while a commit of one of its rows hangs; return the capture after the commit went through."""
    url = server.create_database("shop")
    local = psycopg.connect(url, autocommit=True)
    local.execute("SET synchronous_commit = local")
    local.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    local.execute("INSERT INTO t VALUES (1, 'old'), (2, 'b'), (3, 'c')")
    source = PostgresSource(url, watermark=watermark, name="gap")
    with running_capture(source, folder) as running:
        until(running.dumped, "the first dump")
        hung = HungCommit(url, UPDATE)
        until(lambda: holds_update(running), "the commit is in the change log")
        assert local.execute("SELECT v FROM t WHERE id = 1").fetchone() == ("old",)
        running.state.submit("TABLE", TABLE)
        until(running.dumped, "the dump beside the hung commit")
        hung.let_go()
        assert local.execute("SELECT v FROM t WHERE id = 1").fetchone() == ("new",)
    local.close()
    return running


def holds_update(running: Running) -> bool:
    return (1, "new") in running.content(TABLE)


@req("P49", "P51", "P38", "P39", "P40")
@pytest.mark.parametrize("watermark", ["message", "table"])
def test_the_guard_keeps_the_copy_exact(
    ghost_server: EmbeddedPostgres, watermark: Literal["message", "table"], tmp_path: Path
) -> None:
    running = run_with_hung_commit(ghost_server, watermark, tmp_path)
    assert sorted(running.content(TABLE)) == [(1, "new"), (2, "b"), (3, "c")]


@req("P49")
def test_the_plain_algorithm_ends_with_a_stale_row(
    ghost_server: EmbeddedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emit = Closing.chunk

    def plain(self: Closing, job: Job, task: Task, chunk: Chunk, mark: ReceivedMark) -> Closed:
        as_paper = Chunk(chunk.schema, chunk.rows, _BeforeLow(job.low_scn), chunk.last_key)
        return emit(self, job, task, as_paper, mark)

    monkeypatch.setattr(Closing, "chunk", plain)
    monkeypatch.setattr("headrace.testing.oracle.LedgerOracle.feed", lambda self, block: None)
    running = run_with_hung_commit(ghost_server, "message", tmp_path)
    assert (1, "old") in running.content(TABLE)
