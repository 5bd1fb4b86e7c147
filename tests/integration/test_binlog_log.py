"""What happens to a real binary log, and to whoever reads it, while the source is busy: then both sides agree."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest
from pymysql.cursors import Cursor

from headrace.model.schema import TableId
from headrace.observe import failpoints
from headrace.sources.mysql import MysqlSource
from headrace.sources.mysql.stream import AcknowledgedPosition
from headrace.state.records import RequestState, Scope
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from headrace.watermark.settings import DumpSettings
from tests.binlog_servers import here
from tests.faults.faulty import OFTEN, at_work, failure_of
from tests.fixtures_binlog import (
    Sql,
    database,
    mariadb_server,
    mysql_server,
    server,
    source,
    sql,
)
from tests.integration.binlog import Writer, caught_up, in_source, shopping, writing
from tests.integration.holding import held
from tests.integration.running import running_capture
from tests.requirements import req
from tests.waiting import until

__all__ = ["database", "mariadb_server", "mysql_server", "server", "source", "sql"]


TABLE = (
    "CREATE TABLE t (id int PRIMARY KEY, v int, b text)",
    "INSERT INTO t SELECT seq, 0, 'first' FROM seq_1_to_240",
)
SLOWLY = DumpSettings(chunk_rows=7, request_interval_s=0.02)


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


def shops(server: MysqlProtocolServer, database: str) -> list[Writer]:
    """Return four writers that share a table."""
    return [
        Writer(server, database, seed, functools.partial(shopping, seed=seed), rest_s=0.004)
        for seed in range(4)
    ]


@req("C34", "D29")
def test_files_come_and_go_under_load_while_tables_are_dumped(
    server: MysqlProtocolServer, database: str, sql: Sql, source: MysqlSource, tmp_path: Path
) -> None:
    sql(*TABLE)
    table = TableId(database, "t")
    place = AcknowledgedPosition(tmp_path / "source" / "binlog.json")

    def files() -> set[str]:
        return {file for file, *_ in server.query("SHOW BINARY LOGS")}

    first = files()
    with running_capture(source, tmp_path, SLOWLY) as running:

        def rotate(cursor: Cursor, rng: random.Random, done: int) -> None:
            """Begin a file, and remove all that is acknowledged once we are in the new one."""
            cursor.execute("FLUSH BINARY LOGS")
            newest, _ = here(server)

            def there() -> bool:
                acknowledged = place.read()
                return acknowledged is not None and acknowledged.place.file == newest

            until(there, "the acknowledged place in the new file")
            cursor.execute(f"PURGE BINARY LOGS TO '{newest}'")

        rotation = Writer(server, database, 9, rotate)
        with writing(rotation, *shops(server, database)):
            running.state.submit(Scope.TABLE, table)
            until(running.dumped, "a dump")
            # A file that somebody's dump has open, if only until the server sees that he left, stays.
            until(lambda: rotation.done >= 2 and not first & files(), "the old files gone")
        caught_up(running, source)
        assert running.content(table) == in_source(server, table)


@req("D32")
@pytest.mark.parametrize("how", ["stop", pytest.param("kill", marks=pytest.mark.long)])
def test_the_server_restarts_under_load_in_the_middle_of_a_window(
    how: str,
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    source: MysqlSource,
    tmp_path: Path,
) -> None:
    sql(*TABLE)
    table = TableId(database, "t")
    passes = 0

    def restart() -> None:
        nonlocal passes
        passes += 1
        if passes == 3:
            getattr(server, how)()
            server.start()

    with at_work(source, tmp_path, dump=SLOWLY) as running:
        first = shops(server, database)
        # Who writes is cut off; whether its last transaction is in, it does not know.
        with contextlib.suppress(pymysql.err.MySQLError), writing(*first):
            until(running.dumped, "the first copy")
            failpoints.arm("window.after_select", restart)
            running.state.submit(Scope.TABLE, table)
            until(running.dumped, "the dump with the restart in it")
        assert passes > 3
        with writing(*(writers := shops(server, database))):
            running.state.submit(Scope.TABLE, table)
            until(running.dumped, "a dump among writers who came back")
        caught_up(running, source)
        assert running.error is None
        assert sum(writer.done for writer in writers) > 5
        assert running.content(table) == in_source(server, table)


class _Death(BaseException):
    """Ends a capture where a failpoint is."""


EVERYWHERE = [
    name for name in failpoints.FAILPOINTS if name.startswith(("capture.", "window.", "dump."))
]
SOMEWHERE = ["capture.after_sync", "window.after_select", "window.after_emit"]


@pytest.mark.parametrize(
    "deaths",
    [
        pytest.param(SOMEWHERE, id="some"),
        pytest.param(EVERYWHERE, id="all", marks=pytest.mark.long),
    ],
)
@req("F1", "P19", "P13", "D32")
def test_a_capture_that_dies_at_its_steps_among_writers_loses_and_repeats_nothing(
    deaths: list[str],
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    source: MysqlSource,
    tmp_path: Path,
) -> None:
    sql(*TABLE)
    table = TableId(database, "t")
    rng = random.Random(5)
    with writing(*shops(server, database)):
        for name in deaths:
            wait = rng.randint(1, 4)

            def die() -> None:
                nonlocal wait
                wait -= 1
                if wait == 0:
                    raise _Death

            with at_work(source, tmp_path, dump=SLOWLY) as running:
                failpoints.arm(name, die)
                # What is left of the dump before may be over by now.
                running.state.submit(Scope.TABLE, table)
                if name.startswith("dump."):
                    wait = 1
                assert isinstance(failure_of(running), _Death)
            failpoints.disarm()
        with at_work(source, tmp_path, dump=SLOWLY) as running:
            until(running.dumped, "the dumps")
    with at_work(source, tmp_path, dump=OFTEN) as running:
        caught_up(running, source)
        assert running.content(table) == in_source(server, table)


@req("F7", "P07", "P08", "N04", "N06")
def test_a_dump_is_paused_resumed_hurried_and_cancelled_among_writers(
    server: MysqlProtocolServer, database: str, sql: Sql, source: MysqlSource, tmp_path: Path
) -> None:
    sql(*TABLE)
    table = TableId(database, "t")
    active = [RequestState.QUEUED, RequestState.ACTIVE]
    with (
        running_capture(source, tmp_path, SLOWLY) as running,
        writing(*shops(server, database)),
    ):

        def chunks(request: str) -> int:
            return sum(progress.chunks for progress in running.state.progress(request))

        def settled(request: str) -> int:
            """Return how many chunks a request has once it gets no more."""
            seen = [-1]

            def same() -> bool:
                before = running.reader.tail().complete_scn
                until(lambda: running.reader.tail().complete_scn > before, "the log goes on")
                seen.append(chunks(request))
                return seen[-1] == seen[-2]

            until(same, "no more chunks")
            return seen[-1]

        until(running.dumped, "the first copy")
        running.state.set_pace(delay_s=0.05)
        with held("window.after_low") as read:
            # While a chunk is held, however slow we are, the dump is under way.
            asked = running.state.submit(Scope.TABLE, table)
            assert read.there.wait(60)
            assert running.state.move(asked, RequestState.PAUSED, since=active)
        until(lambda: chunks(asked) > 0, "the chunk that was held")
        before = settled(asked)
        assert before < 240 / 7
        assert running.state.move(asked, RequestState.QUEUED, since=[RequestState.PAUSED])
        # The rest in a few large chunks, without any rest between them.
        running.state.set_pace(chunk_rows=100, delay_s=0.0)
        until(running.dumped, "the rest")
        assert before < chunks(asked) < before + 10
        running.state.set_pace(chunk_rows=3, delay_s=0.05)
        with held("window.after_low") as read:
            cancelled = running.state.submit(Scope.TABLE, table)
            assert read.there.wait(60)
            assert running.state.move(cancelled, RequestState.CANCELLED, since=active)
        until(lambda: not running.state.line(), "nobody waits")
    with running_capture(source, tmp_path, SLOWLY) as running:
        rows = in_source(server, table)
        until(lambda: running.content(table) == rows, "the source's rows")
