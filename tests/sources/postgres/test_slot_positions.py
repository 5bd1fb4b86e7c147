"""Positions at their edges: a commit that ends where the next begins, many rows at one position, ids past 2³²."""

from __future__ import annotations

import random
import re
import struct
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from headrace.errors import SourceError
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.connection import connect
from headrace.testing.postgres import EmbeddedPostgres
from headrace.testing.postgres_server import PostgresServer
from tests.faults.faulty import PUBLIC_T, at_work, follows
from tests.fixtures_postgres import LOGIN, Sql, as_role
from tests.integration.lives import Server
from tests.requirements import req
from tests.sources.postgres.support import opened
from tests.waiting import until

pytestmark = pytest.mark.postgres


def commits(url: str, slot: str, publication: str) -> dict[int, int]:
    """Return where each commit record begins and ends, as another slot tells."""
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, "
            "'proto_version', '1', 'publication_names', %s)",
            (slot, publication),
        ).fetchall()
    ends = (struct.unpack_from(">BQQ", data, 1) for (data,) in rows if data[:1] == b"C")
    return {begin: end for _, begin, end in ends}


@req("H12")
def test_a_commit_that_begins_where_the_last_one_ended_is_neither_lost_nor_sent_twice(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path) as log:
        sql("SELECT pg_create_logical_replication_slot('witness_positions', 'pgoutput')")
        for n in range(0, 40, 2):
            with psycopg.connect(database) as one, psycopg.connect(database) as two:
                one.execute("INSERT INTO t VALUES (%s)", (n,))
                two.execute("INSERT INTO t VALUES (%s)", (n + 1,))
                one.commit()
                got = log.until(lambda item: bool(len(item.block.index)))
                assert got.changes("t") == [("+I", n)]
                two.commit()
            first = got.index[-1]["scn"]
            ends = commits(database, "witness_positions", "headrace")
            # The first is acknowledged, and no more; the server now decides what comes again.
            log.reopen()
            again = log.collect()
            assert again.changes("t") == [("+I", n + 1)]
            if ends[first] == again.index[0]["scn"]:
                break
        else:
            raise AssertionError("no commit ended where the next began")


@req("C25", "C28", "D36")
@pytest.mark.parametrize("seed", [8, 9, 10])
def test_reading_goes_on_behind_any_position_that_was_acknowledged(
    database: str, sql: Sql, tmp_path: Path, seed: int
) -> None:
    """A random history of three sessions, restarted at random places, in the middle of transactions too."""
    chance = random.Random(seed)
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path) as log, ExitStack() as held:
        object.__setattr__(log.source.settings, "block_rows", 4)
        log.reopen()
        sessions = [held.enter_context(psycopg.connect(database)) for _ in range(3)]
        for number in range(80):
            session = chance.choice(sessions)
            session.execute("INSERT INTO t VALUES (%s)", (number,))
            if chance.random() < 0.3:
                session.commit()
        for session in sessions:
            session.commit()
        whole = log.collect(acknowledge=False)
        scns = [entry["scn"] for entry in whole.index if entry["last_piece"]]
        assert scns == sorted(set(scns))
        places_of_rows = [(row["_scn"], row["_ord"]) for row in whole.rows("t")]
        assert places_of_rows == sorted(set(places_of_rows))
        # Not its ordinals: whoever opens the log anew is told a table's shape before its first row.
        rows = [(row["_scn"], row["id"]) for row in whole.rows("t")]
        assert len(rows) == 80
        ended, open_ = 0, 0
        places = sorted(chance.sample(range(len(whole.items)), 8))
        for place, item in enumerate(whole.items):
            done = item.block.index["scn"][item.block.index["last_piece"] == 1]
            ended = max([ended, *done.tolist()])
            if place not in places:
                continue
            log.reader.acknowledge(item.position)
            log.reopen()
            again = log.collect(acknowledge=False).rows("t")
            assert [(row["_scn"], row["id"]) for row in again] == [
                row for row in rows if row[0] > ended
            ]
            open_ += not item.block.ends_complete
        assert open_


def test_a_thousand_rows_of_one_log_record_keep_their_order_across_pieces_and_a_restart(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """COPY writes many rows with one record, so one position: ordinals tell them apart."""
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path) as log:
        object.__setattr__(log.source.settings, "block_rows", 100)
        log.reopen()
        with (
            psycopg.connect(database) as connection,
            connection.cursor().copy("COPY t FROM STDIN") as copy,
        ):
            for n in range(1000):
                copy.write_row((n,))
        piece = log.until(lambda item: bool(len(item.block.index)))
        assert 0 < len(piece.changes("t")) < 1000
        assert piece.index[-1]["last_piece"] == 0
        log.reopen()
        whole = log.collect()
        assert whole.changes("t") == [("+I", n) for n in range(1000)]
        assert len({row["_scn"] for row in whole.rows("t")}) == 1
        orders = [row["_ord"] for row in whole.rows("t")]
        assert orders == list(range(orders[0], orders[0] + 1000))


@req("H12")
def test_transaction_ids_past_their_first_four_billion_are_widened_and_seen(
    tmp_path: Path,
) -> None:
    """The stream has the low 32 bits only; a snapshot compares all 64. Too short, nothing would ever be seen."""
    with Server(tmp_path / "server") as server:
        server.stop()
        server.run("pg_resetwal", "-e", "3", "-D", str(server.data))
        server.start()
        url = server.create_database("shop")
        server.execute(
            "CREATE TABLE t (id int PRIMARY KEY, v text)",
            "INSERT INTO t SELECT n, 'a' FROM generate_series(1, 50) n",
            database="shop",
        )
        source = PostgresSource(url, name="epoch")
        with at_work(source, tmp_path / "state") as running:
            for n in range(20):
                server.execute(f"UPDATE t SET v = 'b{n}' WHERE id % 5 = {n % 5}", database="shop")
            until(running.dumped, "the copy")
            follows(running, url)
            xids = [
                int(xid)
                for block in running.reader.blocks(0)
                for xid in block.index["xid"][block.index["origin"] == 0]
            ]
            assert xids
            assert {xid >> 32 for xid in xids} == {3}
            until(lambda: running.statuses[-1].remembered == 0, "a snapshot has seen all")
            assert running.content(PUBLIC_T).total() == 50


@req("D06")
def test_a_role_that_owns_nothing_adopts_slot_and_publication(
    database: str, sql: Sql, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """SELECT on the tables and REPLICATION are all it has: no table, no publication and no slot is its own."""
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "CREATE PUBLICATION theirs FOR TABLE t",
        "SELECT pg_create_logical_replication_slot('their_slot_limited', 'pgoutput')",
        "DROP ROLE IF EXISTS limited",
        f"CREATE ROLE limited REPLICATION {LOGIN}",
        "GRANT SELECT ON t TO limited",
    )
    url = as_role(database, "limited")
    try:
        own = PostgresSource(url, name="limited")
        assert {"may-not-create-publication", "not-owner"} & {f.name for f in own.preflight()}
        with pytest.raises(SourceError, match=r"may not create a publication|owner"):
            own.prepare()
        source = PostgresSource(url, slot="their_slot_limited", publication="theirs")
        assert [f for f in source.preflight() if f.severity.value == "ERROR"] == []
        with at_work(source, tmp_path) as running:
            follows(running, database)
            sql("UPDATE t SET v = 'c' WHERE id = 1", "DELETE FROM t WHERE id = 2")
            follows(running, database)
            assert running.error is None
        source.drop()
        with psycopg.connect(database) as connection:
            query = "SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE %s"
            left = connection.execute(query, ("their_slot_limited",)).fetchone()
        assert left == (1,)
    finally:
        sql(
            "SELECT pg_drop_replication_slot('their_slot_limited')",
            "REVOKE ALL ON t FROM limited",
            "DROP ROLE limited",
        )


@pytest.mark.since(17)
@pytest.mark.parametrize("asked", [True, False])
def test_our_slot_is_a_failover_slot_when_that_is_asked_for(
    database: str, sql: Sql, asked: bool
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    source = PostgresSource(database, name="kept")
    object.__setattr__(source.settings, "failover", asked)
    source.prepare()
    with psycopg.connect(database) as connection:
        query = "SELECT failover FROM pg_replication_slots WHERE slot_name = 'headrace_kept'"
        assert connection.execute(query).fetchone() == (asked,)
    # Asked for later, the slot that is there is altered as the finding says.
    object.__setattr__(source.settings, "failover", True)
    lacking = [f.suggestion for f in source.preflight() if f.name == "slot-not-failover"]
    assert len(lacking) == (0 if asked else 1)
    for suggestion in lacking:
        statement = re.search(r"ALTER_REPLICATION_SLOT \w+ \(FAILOVER true\);", suggestion)
        assert statement
        with connect(source.settings, replication=True) as session:
            session.run(statement[0])
        assert source.preflight() == []


def test_a_server_without_failover_slots_gets_a_plain_one(older_server: EmbeddedPostgres) -> None:
    url = older_server.create_database("no_failover")
    older_server.execute("CREATE TABLE t (id int PRIMARY KEY)", database="no_failover")
    source = PostgresSource(url, name="kept")
    object.__setattr__(source.settings, "failover", True)
    assert "failover-unsupported" in {finding.name for finding in source.preflight()}
    source.prepare()
    source.drop()
    older_server.drop_database("no_failover")
