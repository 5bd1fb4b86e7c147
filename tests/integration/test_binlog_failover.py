"""A replica of a real MySQL takes its place: what goes on there is followed by ids, and what it lacks is named."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.changelog import ChangeLogReader
from headrace.errors import SourceReplaced
from headrace.model.schema import TableId
from headrace.sources.mysql import MysqlSource
from headrace.state.incarnation import Incarnation
from headrace.state.records import Scope
from headrace.state.store import StateStore
from headrace.testing.mysql_server import MysqlServer
from headrace.watermark.settings import DumpSettings
from tests.faults.faulty import at_work, failure_of
from tests.integration.binlog import Writer, caught_up, in_source, shopping, writing
from tests.integration.running import running_capture
from tests.requirements import req
from tests.waiting import until

pytestmark = pytest.mark.mysql

TABLE = TableId("shop", "t")


@pytest.fixture
def primary() -> Iterator[MysqlServer]:
    with MysqlServer() as server:
        server.execute(
            "CREATE DATABASE shop", "CREATE TABLE shop.t (id int PRIMARY KEY, v int, b text)"
        )
        # Its files have numbers that the replica's will not reach.
        server.execute(*["FLUSH BINARY LOGS"] * 5)
        server.execute("INSERT INTO shop.t VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c')")
        yield server


@contextmanager
def replica_of(primary: MysqlServer) -> Iterator[MysqlServer]:
    """Run a server that follows another one."""
    with MysqlServer(settings={"server_id": "2"}) as server:
        server.execute(
            "DROP USER headrace@'%'",
            "RESET BINARY LOGS AND GTIDS",
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {primary.port}, "
            f"SOURCE_USER = 'headrace', SOURCE_PASSWORD = '{primary.PASSWORD}', SOURCE_AUTO_POSITION = 1, "
            "GET_SOURCE_PUBLIC_KEY = 1",
            "START REPLICA",
        )
        yield server


def executed(server: MysqlServer) -> str:
    found: str = server.query("SELECT @@GLOBAL.gtid_executed")[0][0]
    return found


def source_of(server: MysqlServer, folder: Path) -> MysqlSource:
    return MysqlSource(server.url(), folder / "source", tables=("shop.*",), name="life")


def rising(folder: Path) -> list[int]:
    """Return the SCNs of the change log's transactions, which must rise."""
    scns = [
        int(scn)
        for block in ChangeLogReader(folder / "changelog").blocks(0)
        for scn in block.index["scn"][block.index["last_piece"] == 1]
    ]
    assert scns == sorted(set(scns))
    return scns


@req("N24")
def test_a_replica_that_has_all_is_followed_by_ids_without_a_new_copy(
    primary: MysqlServer, tmp_path: Path
) -> None:
    with replica_of(primary) as replica:
        source = source_of(primary, tmp_path)
        with running_capture(source, tmp_path, DumpSettings(chunk_rows=2)) as running:
            until(running.dumped, "the first copy")
            shops = [
                Writer(primary, "shop", seed, functools.partial(shopping, seed=seed), rest_s=0.004)
                for seed in range(4)
            ]
            with writing(*shops):
                until(lambda: min(shop.done for shop in shops) > 20, "some transactions")
            # What comes last is nothing of ours: a file that ends.
            primary.execute("FLUSH BINARY LOGS")
            caught_up(running, source)
        before = rising(tmp_path)
        until(lambda: executed(replica) == executed(primary), "the replica has it all")
        wanted = in_source(primary, TABLE)
        primary.kill()
        replica.execute("STOP REPLICA", "RESET REPLICA ALL")
        replica.execute(
            "UPDATE shop.t SET v = -1", "INSERT INTO shop.t VALUES (900, 1, 'new life')"
        )
        source = source_of(replica, tmp_path)
        with running_capture(source, tmp_path, DumpSettings(chunk_rows=2)) as running:
            caught_up(running, source)
            assert len(running.state.requests()) == 1, "nothing was copied again"
            assert running.content(TABLE) == in_source(replica, TABLE) != wanted
            # Chunks are told from what the old server had committed, too.
            running.state.submit(Scope.TABLE, TABLE)
            replica.execute(
                "UPDATE shop.t SET v = -2", "FLUSH BINARY LOGS", "DELETE FROM shop.t WHERE id = 900"
            )
            until(running.dumped, "a dump")
            caught_up(running, source)
            assert running.content(TABLE) == in_source(replica, TABLE)
        # And on, where it was: numbers of the new server's files stay above.
        replica.execute("INSERT INTO shop.t VALUES (901, 1, 'later')")
        source = source_of(replica, tmp_path)
        with running_capture(source, tmp_path) as running:
            caught_up(running, source)
            assert running.content(TABLE) == in_source(replica, TABLE)
        after = rising(tmp_path)
        assert after[: len(before)] == before
        assert len(after) > len(before)
        life = Incarnation.read(StateStore(tmp_path / "state.db"))
        assert life is not None
        assert life.name == source.incarnation()


@req("N24", "D32")
@pytest.mark.parametrize(
    "lacks",
    [
        pytest.param(False, id="all there"),
        pytest.param(True, id="last words lost", marks=pytest.mark.long),
    ],
)
def test_a_capture_whose_host_died_before_its_last_acknowledgement_goes_on_by_what_its_log_holds(
    lacks: bool, primary: MysqlServer, tmp_path: Path
) -> None:
    """What is acknowledged is written now and then: the change log alone says what was captured."""
    with replica_of(primary) as replica:
        source = source_of(primary, tmp_path)
        place = tmp_path / "source" / "binlog.json"
        with running_capture(source, tmp_path) as running:
            until(running.dumped, "the first copy")
            caught_up(running, source)
        written = place.read_text()
        with running_capture(source, tmp_path) as running:
            primary.execute(
                "INSERT INTO shop.t VALUES (50, 1, 'x')",
                "SET SESSION binlog_row_image = MINIMAL",
                "UPDATE shop.t SET id = 51, v = 2 WHERE id = 50",
                # Its number is above that of the file whose place was written.
                "FLUSH BINARY LOGS",
                "DELETE FROM shop.t WHERE id = 1",
            )
            if lacks:
                until(lambda: executed(replica) == executed(primary), "the replica has it so far")
                replica.execute("STOP REPLICA")
            primary.execute("INSERT INTO shop.t VALUES (52, 1, 'last')")
            caught_up(running, source)
        before = rising(tmp_path)
        place.write_text(written)
        if not lacks:
            until(lambda: executed(replica) == executed(primary), "the replica has it all")
        primary.kill()
        replica.execute("STOP REPLICA", "RESET REPLICA ALL")
        replica.execute("UPDATE shop.t SET v = -1")
        source = source_of(replica, tmp_path)
        if lacks:
            with at_work(source, tmp_path) as lacking:
                error = failure_of(lacking)
            assert isinstance(error, SourceReplaced)
            assert "lacks transactions that were read" in error.message
            return
        with running_capture(source, tmp_path) as running:
            caught_up(running, source)
            assert len(running.state.requests()) == 1, "nothing was copied again"
            assert running.content(TABLE) == in_source(replica, TABLE)
        after = rising(tmp_path)
        assert after[: len(before)] == before
        assert len(after) == len(before) + 1, "nothing came twice"


@req("N24")
def test_a_replica_that_lacks_what_was_captured_is_refused_by_name(
    primary: MysqlServer, tmp_path: Path
) -> None:
    with replica_of(primary) as replica:
        until(lambda: executed(replica) == executed(primary), "the replica has it all")
        replica.execute("STOP REPLICA")
        source = source_of(primary, tmp_path)
        with running_capture(source, tmp_path) as running:
            primary.execute("INSERT INTO shop.t VALUES (7, 7, 'only here')")
            caught_up(running, source)
        primary.kill()
        with at_work(source_of(replica, tmp_path), tmp_path) as running:
            error = failure_of(running)
        assert isinstance(error, SourceReplaced)
        assert "lacks transactions that were read" in error.message
        assert "headrace resync" in error.next_step
