"""Slot and publication: made, found again, adopted, lost, removed; what is acknowledged is what moves."""

from __future__ import annotations

import time
from pathlib import Path

import psycopg
import pytest

from headrace.errors import PreflightFailed, SlotLost, SourceError, SourceUnavailable
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.lsn import parse_lsn
from headrace.testing.postgres import EmbeddedPostgres
from headrace.testing.postgres_server import PostgresServer
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.sources.postgres.support import DEADLINE_S, Opened, opened
from tests.waiting import until

pytestmark = pytest.mark.postgres


def ask(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()


def confirmed(log: Opened, url: str) -> int:
    slot = log.source.settings.slot_name
    ((text,),) = ask(
        url,
        f"SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '{slot}'",
    )
    return parse_lsn(str(text))


def published(url: str, name: str) -> set[str]:
    rows = ask(url, f"SELECT tablename FROM pg_publication_tables WHERE pubname = '{name}'")
    return {str(table) for (table,) in rows}


@req("H12", "D36")
def test_what_was_not_acknowledged_comes_again_unchanged_and_the_rest_does_not(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path) as log:
        sql("INSERT INTO t VALUES (1)")
        first = log.collect()
        sql("INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (3)")
        second = log.collect(acknowledge=False)
        log.reopen()
        again = log.collect()
        assert again.changes("t") == second.changes("t") == [("+I", 2), ("+I", 3)]
        # The table is described anew to a new connection, which shifts ordinals and nothing else.
        same = ("scn", "commit_us", "xid")
        assert [[e[k] for k in same] for e in again.index] == [
            [e[k] for k in same] for e in second.index
        ]
        assert first.index[0]["scn"] < again.index[0]["scn"]
        log.reopen()
        assert log.collect().changes("t") == []


def test_the_server_is_told_only_what_was_acknowledged(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path) as log:
        before = confirmed(log, database)
        sql("INSERT INTO t VALUES (1)")
        got = log.collect(acknowledge=False)
        for _ in range(10):  # feedback goes out while we poll
            log.reader.poll(0.02)
        assert confirmed(log, database) == before
        log.reader.acknowledge(got.items[-1].position)
        wanted = parse_lsn(got.items[-1].position)
        until(lambda: confirmed(log, database) >= wanted, "the slot moved", DEADLINE_S)


@req("T12")
def test_a_quiet_database_still_moves_its_slot_on(
    database: str, sql: Sql, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path) as log:
        # No message of our own helps.
        object.__setattr__(log.source.settings, "heartbeat_s", 3_600.0)
        log.reopen()
        log.collect()
        before = confirmed(log, database)
        # Somebody else's database fills the log; nothing of it is ours.
        postgres_server.execute(
            "CREATE TABLE IF NOT EXISTS noise AS SELECT generate_series(1, 5000) n",
            "DROP TABLE noise",
        )
        end = log.source.end_scn()
        started = time.monotonic()
        quiet = log.until(lambda item: item.block.covered_scn >= end)
        assert all(not len(block.index) and not block.bodies for block in quiet.blocks)
        covered = [block.covered_scn for block in quiet.blocks]
        assert covered == sorted(covered)
        assert len(covered) <= 3 * (time.monotonic() - started) + 3
        until(lambda: confirmed(log, database) > before, "the slot moved", DEADLINE_S)


def test_the_end_lies_between_the_commits_before_it_and_those_that_come(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """Of an idle log nothing more is told than what lies before its end, so nobody may wait for that end itself."""
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path) as log, psycopg.connect(database) as connection:
        log.collect()
        sql("INSERT INTO t VALUES (1)")
        connection.execute("INSERT INTO t VALUES (2)")
        end = log.source.end_scn()
        # The commit is the next record.
        connection.commit()
        index = [entry for block in log.collect().blocks for entry in block.index]
        first, second = (int(entry["scn"]) for entry in index)
        assert first <= end < second


def test_a_heartbeat_moves_a_database_where_nothing_happens_at_all(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path) as log:
        log.collect()
        object.__setattr__(log.source.settings, "heartbeat_s", 0.2)
        log.reopen()
        log.collect()
        covered = log.until(lambda item: not len(item.block.index)).blocks[-1].covered_scn
        more = log.until(lambda item: item.block.covered_scn > covered)
        assert more.marks == []
        assert all(not len(block.index) for block in more.blocks)


def test_prepare_twice_changes_nothing_and_follows_the_tables(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)")
    source = PostgresSource(database, name="My Shop!")
    source.prepare()
    source.prepare()
    assert source.settings.slot_name == "headrace_my_shop_22e214a0"
    assert published(database, "headrace_my_shop_22e214a0") == {"a", "b"}
    sql("CREATE TABLE c (id int PRIMARY KEY)")
    later = PostgresSource(database, exclude=("b",), name="My Shop!")
    later.prepare()
    # What it lacks may have been taken out, and comes in once its changes are known to have passed by.
    assert published(database, "headrace_my_shop_22e214a0") == {"a"}
    later.prepare(fresh=True)
    assert published(database, "headrace_my_shop_22e214a0") == {"a", "c"}
    assert ask(
        database, "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    ) == [(1,)]
    source.drop()


@pytest.mark.parametrize("watermark", ["message", "table"])
def test_drop_removes_what_prepare_made_and_nothing_else(
    database: str, sql: Sql, watermark: str
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    source = PostgresSource(database, watermark=watermark)  # type: ignore[arg-type]
    source.prepare()
    source.drop()
    source.drop()
    assert ask(database, "SELECT 1 FROM pg_publication") == []
    assert (
        ask(database, "SELECT 1 FROM pg_replication_slots WHERE database = current_database()")
        == []
    )
    assert ask(database, "SELECT to_regclass('headrace.watermarks')::text") == [(None,)]
    assert ask(database, "SELECT to_regclass('t')::text") == [("t",)]
    source.prepare()
    source.drop()


def test_a_refused_table_is_never_published(database: str, sql: Sql) -> None:
    sql("CREATE TABLE good (id int PRIMARY KEY)", "CREATE TABLE bad (v int)")
    source = PostgresSource(database)
    with pytest.raises(PreflightFailed, match=r"public\.bad") as caught:
        source.prepare()
    assert "REPLICA IDENTITY FULL" in caught.value.next_step
    assert ask(database, "SELECT 1 FROM pg_publication") == []
    assert (
        ask(database, "SELECT 1 FROM pg_replication_slots WHERE database = current_database()")
        == []
    )
    sql("INSERT INTO bad VALUES (1)", "UPDATE bad SET v = 2")
    PostgresSource(database, exclude=("bad",)).prepare()
    sql("UPDATE bad SET v = 3")


def test_named_slot_and_publication_are_read_and_left_alone(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TABLE unwanted (id int PRIMARY KEY)",
        "CREATE PUBLICATION theirs FOR TABLE t, unwanted",
        "SELECT pg_create_logical_replication_slot('their_slot_1', 'pgoutput')",
    )
    arguments = {"slot": "their_slot_1", "publication": "theirs", "exclude": ("unwanted",)}
    with opened(database, tmp_path, **arguments) as log:
        sql("INSERT INTO t VALUES (1)")
        assert log.collect().changes("t") == [("+I", 1)]
    log.source.drop()
    assert published(database, "theirs") == {"t", "unwanted"}
    assert ask(database, "SELECT pubname FROM pg_publication") == [("theirs",)]
    assert (
        len(ask(database, "SELECT 1 FROM pg_replication_slots WHERE slot_name = 'their_slot_1'"))
        == 1
    )


@req("P23")
def test_a_column_list_of_a_named_publication_holds_for_log_and_chunk(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, secret text, v int)",
        "CREATE PUBLICATION part FOR TABLE t (id, v)",
        "INSERT INTO t VALUES (1, 'x', 1)",
    )
    with opened(database, tmp_path, publication="part") as log:
        sql("INSERT INTO t VALUES (2, 'y', 2)")
        got = log.collect()
        assert got.changes("t") == [("+I", 2, 2)]
        (table,) = log.source.tables()
        reader = log.source.chunks()
        assert reader.read(table.table, None, ("9",), 10).rows.to_pylist() == [
            {"id": 1, "v": 1},
            {"id": 2, "v": 2},
        ]
        assert table.schema_id == got.bodies[0].schema_id
        reader.close()


def test_a_table_taken_out_of_the_publication_stops_the_capture_and_a_dropped_one_does_not(
    database: str, sql: Sql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.sources.postgres.stream._WATCH_S", 0.1)
    sql(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TABLE u (id int PRIMARY KEY)",
        "CREATE PUBLICATION theirs FOR TABLE t, u",
    )
    with opened(database, tmp_path, publication="theirs") as log:
        log.reader.poll(0.3)
        sql("DROP TABLE u")
        log.reader.poll(0.3)
        sql("ALTER PUBLICATION theirs DROP TABLE t")
        with pytest.raises(SourceError, match=r"public\.t left publication theirs"):
            log.until(lambda item: item.mark is not None)


def test_a_slot_that_was_removed_is_lost_and_never_made_again_in_silence(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path) as log:
        log.collect()
        log.reader.close()
        name = log.source.settings.slot_name
        until(
            lambda: (
                ask(database, f"SELECT active FROM pg_replication_slots WHERE slot_name = '{name}'")
                == [(False,)]
            ),
            "the server freed the slot",
            DEADLINE_S,
        )
        sql(f"SELECT pg_drop_replication_slot('{name}')")
        with pytest.raises(SlotLost, match="does not exist"):
            log.source.open(log.registry)
        with pytest.raises(SlotLost, match="does not exist"):
            log.source.prepare()
        log.source.prepare(fresh=True)  # starting over is asked for, not done in silence
        log.source.drop()
        log.source.prepare()


def test_a_slot_whose_making_was_cut_short_is_not_made_again_in_silence_either(
    database: str, sql: Sql
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    source = PostgresSource(database)
    source.prepare()
    # As where we ended between the making of the slot and the note of it.
    sql(f"COMMENT ON PUBLICATION {source.settings.publication_name} IS NULL")
    source.prepare()
    sql(f"SELECT pg_drop_replication_slot('{source.settings.slot_name}')")
    with pytest.raises(SlotLost, match="does not exist"):
        source.prepare()


def test_an_invalidated_slot_is_lost(tmp_path: Path) -> None:
    settings = {"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    with EmbeddedPostgres(settings=settings) as server:
        url = server.create_database("shop")
        server.execute("CREATE TABLE t (id int PRIMARY KEY)", database="shop")
        source = PostgresSource(url)
        source.prepare()

        def invalidated() -> bool:
            server.execute(
                "SELECT pg_logical_emit_message(false, 'x', repeat('x', 1000000)) "
                "FROM generate_series(1, 20)",
                "SELECT pg_switch_wal()",
                "CHECKPOINT",
            )
            return ask(url, "SELECT wal_status FROM pg_replication_slots") == [("lost",)]

        until(invalidated, "the slot is invalidated", DEADLINE_S)
        assert "slot-lost" in {finding.name for finding in source.preflight()}
        with pytest.raises(SlotLost, match="invalidated"):
            Opened(source, tmp_path)


def test_two_readers_of_one_slot_are_refused_for_now(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path) as log:
        object.__setattr__(log.source.settings, "slot_busy_s", 0.2)
        with pytest.raises(SourceUnavailable, match="in use"):
            log.source.open(log.registry)


def test_incarnation_names_system_and_timeline(
    database: str, postgres_server: PostgresServer
) -> None:
    source = PostgresSource(database)
    ((system,),) = ask(database, "SELECT system_identifier::text FROM pg_control_system()")
    assert source.incarnation() == f"{system}/1"
