"""The visibility race without any standby: 64 busy clients, and selects that miss what the log has already brought.

A commit is decoded and received before other sessions see it, for as long as its backend is not scheduled between
the two. The system decides when that is, so the test lets it stop all clients at an arbitrary moment, again and again,
as a busy machine does with some of them; those that stand in the gap are in the log and in no snapshot. It counts the
commits that were received before a select began and that its snapshot lacks.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from headrace.model.block import Block
from headrace.model.schema import TableId
from headrace.model.snapshot import NO
from headrace.sources.base import Chunk
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.chunks import PostgresChunkReader
from headrace.state.records import Scope
from headrace.testing.postgres import EmbeddedPostgres
from headrace.watermark.reconciler import Reconciler
from headrace.watermark.settings import DumpSettings
from tests.integration.running import running_capture
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]

T = TableId("public", "t")
CLIENTS, ROWS = 64, 300
ENOUGH = 3
UPDATE = f"""\\set id random(1, {ROWS})
UPDATE t SET n = n + 1 WHERE id = :id;
"""


class Load:
    """64 clients that update rows as fast as they can.

    Args:
        server: where; a database called race with a table t.
        folder: for their script.
    """

    def __init__(self, server: EmbeddedPostgres, folder: Path) -> None:
        script = folder / "update.sql"
        script.write_text(UPDATE)
        arguments = ["-n", "-c", str(CLIENTS), "-j", "2", "-T", "280", "-f", str(script)]
        self._process = subprocess.Popen(
            [server.program("pgbench"), *arguments, server.url("race")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._url = server.url("race")
        until(lambda: len(self.backends()) == CLIENTS, "the clients")
        self._pids = self.backends()

    def backends(self) -> list[int]:
        with psycopg.connect(self._url) as session:
            rows = session.execute(
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'pgbench'"
            ).fetchall()
        return [pid for (pid,) in rows]

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let nobody go on, wherever it is."""
        self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process.poll() is None, "the load has ended"
        for pid in self._pids:
            os.kill(pid, number)

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        until(lambda: not self.backends(), "the end of the load")


class Race:
    """What was received before each select began, and how much of it the select did not see."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.received: list[tuple[int, int]] = []
        self.invisible = self.selects = 0
        remember, read = Reconciler.remember, PostgresChunkReader.read

        def remembered(reconciler: Reconciler, block: Block, *, idle: bool) -> None:
            remember(reconciler, block, idle=idle)
            index = block.index
            self.received += zip(index["xid"].tolist(), index["scn"].tolist(), strict=True)

        def chunk(reader: PostgresChunkReader, *arguments: Any) -> Chunk:
            before = np.array(self.received[-2_000:], np.int64).reshape(-1, 2)
            found = read(reader, *arguments)
            sees = found.visibility.sees(before[:, 0], before[:, 1])
            self.invisible += int((sees == NO).sum())
            self.selects += 1
            return found

        monkeypatch.setattr(Reconciler, "remember", remembered)
        monkeypatch.setattr(PostgresChunkReader, "read", chunk)


@req("P49", "P13", "P51")
def test_commits_that_are_received_and_not_yet_visible_do_not_make_the_copy_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    race = Race(monkeypatch)
    with EmbeddedPostgres() as server:
        url = server.create_database("race")
        server.execute(
            "CREATE TABLE t (id int PRIMARY KEY, n bigint NOT NULL)",
            f"INSERT INTO t SELECT g, 0 FROM generate_series(1, {ROWS}) g",
            database="race",
        )
        dump = DumpSettings(chunk_rows=ROWS, request_interval_s=0.02)
        with running_capture(PostgresSource(url), tmp_path, dump) as running:
            until(running.dumped, "the first copy")
            load = Load(server, tmp_path)
            try:
                moments = 0
                while race.invisible < ENOUGH:
                    moments += 1
                    assert moments < 150, f"{race.invisible} commits in {race.selects} selects"
                    if running.dumped():
                        running.state.submit(Scope.TABLE, T)
                    selects, received = race.selects, len(race.received)
                    with load.stopped():
                        # Whoever stops with a lock that everybody needs holds the select up as well.
                        _for_a_while(lambda: race.selects > selects)  # noqa: B023
                    until(lambda: len(race.received) > received, "the load goes on")  # noqa: B023
            finally:
                load.end()
            until(running.dumped, "the last dump")
            with psycopg.connect(url) as session:
                rows = set(session.execute("SELECT id, n FROM t").fetchall())
            until(lambda: set(running.content(T)) == rows, "the rows of the source")
    print(f"{race.invisible} of {len(race.received)} commits in {race.selects} selects")


def _for_a_while(condition: Any) -> None:
    try:
        until(condition, "a select", 1.0)
    except AssertionError:
        return
