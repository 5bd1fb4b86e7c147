"""W7: a commit that is in the change log and that nobody sees yet outlives a restart; chunks wait until it is seen."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from headrace.state.records import Scope
from headrace.testing.postgres import EmbeddedPostgres
from headrace.watermark.settings import DumpSettings
from tests.faults.faulty import confirmed, position
from tests.integration.hung_commits import HungCommit
from tests.integration.running import running_capture
from tests.integration.selects import Selects
from tests.integration.test_visibility_gap import UPDATE, holds_update
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

T = TableId("public", "t")
DUMP = DumpSettings(chunk_rows=2, request_interval_s=0.02, snapshot_interval_s=0.02)


@req("P49", "P13", "C13")
def test_a_restart_forgets_no_commit_that_is_not_visible_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedPostgres() as server:
        url = server.create_database("shop")
        local = psycopg.connect(url, autocommit=True)
        local.execute("SET synchronous_commit = local")
        local.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        local.execute("INSERT INTO t VALUES (1, 'old'), (2, 'b'), (3, 'c')")
        source = PostgresSource(url, name="gap")
        with running_capture(source, tmp_path, DUMP) as running:
            until(running.dumped, "the first copy")
            hung = HungCommit(url, UPDATE)
            until(lambda: holds_update(running), "the commit is in the change log")
            end = position(url)
            # The source forgets it: it will not come again.
            local.execute("INSERT INTO t VALUES (4, 'd')")
            until(lambda: confirmed(url, "headrace_gap") >= end, "it is acknowledged")
        assert local.execute("SELECT v FROM t WHERE id = 1").fetchone() == ("old",)

        selects = Selects(monkeypatch)
        with running_capture(source, tmp_path, DUMP) as running:
            request = running.state.submit(Scope.TABLE, T)
            for number in range(10, 18):
                local.execute("INSERT INTO t VALUES (%s, 'more')", (number,))
                running.wait_for_scn(position(url) - 1)
            assert not selects.times, "a chunk was read that cannot have seen the commit"
            assert running.state.progress(request)[0].rows_read == 0
            hung.let_go()
            until(running.dumped, "the dump")
            rows = set(local.execute("SELECT id, v FROM t").fetchall())
            assert (1, "new") in rows
            until(lambda: set(running.content(T)) == rows, "the rows of the source")
        local.close()
    assert selects.times
