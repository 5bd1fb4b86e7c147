"""Commits that are in the binary log and that no select sees yet.

What holds them is semi-synchronous replication without a replica: with ``AFTER_SYNC`` a commit waits between its place
in the log, whose readers have it already, and its visibility. The rule that takes the place up to which the log has
come for what a select sees ends stale in the same test.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from pymysql.cursors import Cursor

from headrace.model.block import Block
from headrace.model.schema import TableId
from headrace.model.snapshot import YES, Visibility
from headrace.observe import failpoints
from headrace.sources.base import Chunk, ReceivedMark
from headrace.sources.mysql import MysqlSource
from headrace.state.records import Scope
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from headrace.testing.oracle import OracleViolation
from headrace.watermark.closing import Closed, Closing, Job
from headrace.watermark.reconciler import Reconciler
from headrace.watermark.settings import DumpSettings
from headrace.watermark.tasks import Task
from tests.binlog_servers import hold_commits, let_commits
from tests.fixtures_binlog import (
    Sql,
    database,
    mariadb_server,
    mysql_server,
    server,
    source,
    sql,
)
from tests.integration.binlog import Writer, caught_up, in_source, writing
from tests.integration.running import running_capture
from tests.requirements import req
from tests.scenarios.test_random_histories import _BeforeLow
from tests.waiting import until

__all__ = ["database", "mariadb_server", "mysql_server", "server", "source", "sql"]

WRITERS, ROWS, DUMPS = 8, 2_000, 5


class Gap:
    """Lets commits be in the log and not visible.

    Attributes:
        received: SCN up to which the stream has come.
        by_place: take what the stream had brought before a select for what the select saw.
        selects: that lack a commit which the stream had brought before.
    """

    def __init__(
        self,
        server: MysqlProtocolServer,
        source: MysqlSource,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self._server = server
        self._source = source
        self.received = self.selects = self._before = self._xid = 0
        self.by_place = False
        remember, close = Reconciler.remember, Closing.chunk

        def remembered(reconciler: Reconciler, block: Block, *, idle: bool) -> None:
            remember(reconciler, block, idle=idle)
            if len(block.index):
                self._xid, self.received = int(block.index["xid"][-1]), block.last_scn

        def closed(
            closing: Closing, job: Job, task: Task, chunk: Chunk, mark: ReceivedMark
        ) -> Closed:
            self.selects += not self.seen(chunk.visibility)
            if self.by_place:
                seen = _BeforeLow(self._before)
                chunk = Chunk(chunk.schema, chunk.rows, seen, chunk.last_key)
            return close(closing, job, task, chunk, mark)

        monkeypatch.setattr(Reconciler, "remember", remembered)
        monkeypatch.setattr(Closing, "chunk", closed)

    def open(self) -> None:
        """Hold back whatever is committed from now on."""
        hold_commits(self._server)

    def close(self) -> None:
        """Let all commits go through."""
        let_commits(self._server)

    def seen(self, visibility: Visibility) -> bool:
        """Whether a select has surely seen the last transaction that the stream has brought."""
        last = [np.array([number], np.int64) for number in (self._xid, self.received)]
        return bool(visibility.sees(*last)[0] == YES)

    def visible(self) -> bool:
        """Whether a select that begins now would."""
        with contextlib.closing(self._source.chunks()) as reader:
            return self.seen(reader.snapshot())

    @contextmanager
    def before_each_select(self) -> Iterator[None]:
        """Let each chunk be selected while the stream has a commit that no select sees."""

        def held() -> None:
            self.open()
            until(lambda: self._xid and not self.visible(), "a commit that only the stream has")
            self._before = self.received

        failpoints.arm("window.after_low", held)
        failpoints.arm("window.after_select", self.close)
        try:
            yield
        finally:
            failpoints.disarm()
            self.close()


@pytest.fixture
def gap(
    server: MysqlProtocolServer, source: MysqlSource, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Gap]:
    opened = Gap(server, source, monkeypatch)
    yield opened
    opened.close()


@req("P49", "P13")
@pytest.mark.parametrize(
    "by_place",
    [
        pytest.param(False, id="exact"),
        pytest.param(True, id="by place", marks=pytest.mark.long),
    ],
)
def test_dumps_among_eight_writers_whose_commits_are_received_and_not_yet_visible(
    by_place: bool,
    gap: Gap,
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    source: MysqlSource,
    tmp_path: Path,
) -> None:
    table = TableId(database, "t")
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, n int)",
        f"INSERT INTO t SELECT seq, 0 FROM seq_1_to_{ROWS}",
    )

    def write(cursor: Cursor, rng: random.Random, done: int) -> None:
        cursor.execute(f"UPDATE t SET n = n + 1 WHERE id = {rng.randint(1, ROWS)}")

    writers = [Writer(server, database, seed, write) for seed in range(WRITERS)]
    dump = DumpSettings(chunk_rows=ROWS, request_interval_s=0.02)
    with running_capture(source, tmp_path, dump) as running:
        until(running.dumped, "the first copy")
        gap.by_place = by_place
        with gap.before_each_select(), writing(*writers):
            for _ in range(DUMPS):
                running.state.submit(Scope.TABLE, table)
                until(running.dumped, "a dump among writers")
        caught_up(running, source)
        assert gap.selects >= DUMPS
        if by_place:
            with pytest.raises(OracleViolation):
                running.content(table)
        else:
            assert running.content(table) == in_source(server, table)


@req("P49")
def test_a_dump_that_is_asked_for_while_a_commit_is_held_waits_for_it(
    gap: Gap,
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    source: MysqlSource,
    tmp_path: Path,
) -> None:
    table = TableId(database, "t")
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'old'), (2, 'b')")
    selected = threading.Event()
    with ThreadPoolExecutor(1) as beside, running_capture(source, tmp_path) as running:
        until(running.dumped, "the first dump")
        failpoints.arm("window.after_select", selected.set)
        gap.open()
        update = beside.submit(sql, "UPDATE t SET v = 'new' WHERE id = 1")
        until(lambda: (1, "new") in running.content(table), "the commit in the change log")
        assert (1, "old") in in_source(server, table)
        running.state.submit(Scope.TABLE, table)
        # The low mark's commit waits behind the other one, and no select begins before it.
        until(lambda: "watermarks" in waiting(server), "the low mark")
        assert not selected.is_set()
        gap.close()
        caught_up(running, source)
        update.result()
        assert selected.is_set()
        assert running.content(table) == {(1, "new"): 1, (2, "b"): 1}
    failpoints.disarm()


def waiting(server: MysqlProtocolServer) -> str:
    """Return what sessions that wait for the end of a commit are about."""
    found = server.query(
        "SELECT info FROM information_schema.processlist WHERE info LIKE 'UPDATE %' "
        "AND (state LIKE 'commit%' OR state LIKE 'waiting%')"
    )
    return " ".join(text for (text,) in found)
