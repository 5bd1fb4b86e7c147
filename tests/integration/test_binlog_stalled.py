"""A reader of a real server's log that reads nothing for longer than servers wait by default: it is not cut off."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.model.schema import TableId
from headrace.observe import failpoints
from headrace.sources.mysql import MysqlSource
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from tests.faults.faulty import at_work
from tests.fixtures_binlog import Sql, database, mariadb_server, mysql_server, server, source, sql
from tests.integration.binlog import caught_up
from tests.requirements import req
from tests.waiting import until

__all__ = ["database", "mariadb_server", "mysql_server", "server", "source", "sql"]

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

STALL_S = 80.0
"""The server ends a connection to which it could not write for 60 s, if nobody asks for more."""
ROWS, WIDTH = 40_000, 5_000
"""More than the sockets between the two hold."""


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


@req("P17", "D32")
def test_a_reader_that_stalls_for_eighty_seconds_reads_on_over_the_same_connection(
    server: MysqlProtocolServer, database: str, sql: Sql, source: MysqlSource, tmp_path: Path
) -> None:
    def reader() -> list[int]:
        query = "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
        return [number for (number,) in server.query(query)]

    sql("CREATE TABLE t (id int PRIMARY KEY, v longtext)", "INSERT INTO t VALUES (0, 'first')")
    stalled_s = 0.0

    def stall() -> None:
        nonlocal stalled_s
        failpoints.disarm()
        begun = time.monotonic()
        until(lambda: time.monotonic() - begun > STALL_S, "the end of the stall", STALL_S + 10, 0.5)
        stalled_s = time.monotonic() - begun

    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        (before,) = reader()
        failpoints.arm("capture.after_poll", stall)
        for first in range(1, ROWS, 2_000):
            sql(
                f"INSERT INTO t SELECT seq, REPEAT('x', {WIDTH}) FROM seq_{first}_to_{first + 1999}"
            )
        until(lambda: stalled_s, "the stall", 120)
        caught_up(running, source)
        assert reader() == [before]
        assert running.error is None
        assert stalled_s > STALL_S
        assert running.content(TableId(database, "t")).total() == ROWS + 1
