"""Another real MariaDB takes the place of the one that was captured: SCNs rise, and nothing is skipped in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.changelog import ChangeLogReader
from headrace.errors import SourceReplaced
from headrace.model.schema import TableId
from headrace.sources.mysql import MysqlSource
from headrace.testing.mariadb_server import MariadbServer
from tests.faults.faulty import AtWork, at_work, failure_of, named
from tests.integration.binlog import caught_up, in_source
from tests.integration.lives import begun_again, life_of
from tests.integration.mariadb_replicas import promoted, replicated
from tests.integration.test_failover import rising
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.mariadb, pytest.mark.long]

T = TableId("shop", "t")


def source_of(server: MariadbServer, folder: Path) -> MysqlSource:
    return MysqlSource(server.url(), folder / "source", ("shop.*",), name="life")


def follows(running: AtWork, source: MysqlSource, server: MariadbServer) -> None:
    caught_up(running, source)
    until(lambda: running.holds(T, in_source(server, T)), "the table as the server has it")


@req("N24", "P06", "H26")
@pytest.mark.parametrize("lacks", [False, True], ids=["all there", "last words lost"])
def test_a_replica_that_takes_over_is_never_skipped_over(lacks: bool, tmp_path: Path) -> None:
    """Its log has the same ids at other places, and what was read on may be in it or not."""
    with replicated() as (primary, replica):
        primary.execute(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id int PRIMARY KEY, v text)",
            "INSERT INTO shop.t SELECT seq, 'first' FROM shop.seq_1_to_9",
        )
        source = source_of(primary, tmp_path)
        with at_work(source, tmp_path) as running:
            until(running.dumped, "the first copy")
            primary.execute("UPDATE shop.t SET v = 'before' WHERE id < 4")
            follows(running, source, primary)
            if lacks:
                until(lambda: in_source(replica, T) == in_source(primary, T), "the replica")
                replica.execute("STOP SLAVE")
                primary.execute("INSERT INTO shop.t VALUES (20, 'last words')")
                follows(running, source, primary)
        before = rising(tmp_path)
        promoted(primary, replica, lacks=lacks)
        # Nobody reads these.
        replica.execute(
            "INSERT INTO shop.t VALUES (30, 'new life')", "DELETE FROM shop.t WHERE id = 2"
        )
        source = source_of(replica, tmp_path)
        with at_work(source, tmp_path) as running:
            error = named(failure_of(running), SourceReplaced, "life")
            assert "RESYNC NEEDED" in error.message
            held = ChangeLogReader(tmp_path / "changelog").tail().complete_scn
            assert held == before[-1], "nothing of the other log was taken"
        life = begun_again(source, tmp_path)
        with at_work(source, tmp_path) as running:
            follows(running, source, replica)
            replica.execute("UPDATE shop.t SET v = 'after' WHERE id = 1")
            follows(running, source, replica)
        after = rising(tmp_path)
        assert after[: len(before)] == before
        assert after[-1] > before[-1]
        assert life_of(tmp_path) == life
