"""What becomes of the slot behind our back: dropped, read by others, moved on, its connection ended."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from headrace.errors import SlotLost, SourceUnavailable
from headrace.registry.file import FileRegistry
from headrace.sources.postgres import PostgresSource
from tests.faults.faulty import (
    AtWork,
    at_work,
    confirmed,
    copied,
    failure_of,
    follows,
    named,
    position,
)
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = pytest.mark.postgres


@pytest.fixture
def source(database: str, sql: Sql) -> PostgresSource:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    return PostgresSource(database, name="slots")


SLOT = "headrace_slots"


def free(url: str) -> None:
    """Wait until nobody reads the slot."""

    def is_free() -> bool:
        with psycopg.connect(url) as connection:
            query = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
            return connection.execute(query, (SLOT,)).fetchone() == (False,)

    until(is_free, "the slot is free")


def test_a_slot_dropped_while_stopped_is_lost_and_a_new_state_copies_again(
    source: PostgresSource, database: str, sql: Sql, tmp_path: Path
) -> None:
    copied(source, tmp_path / "old")
    free(database)
    sql(f"SELECT pg_drop_replication_slot('{SLOT}')", "DELETE FROM t WHERE id = 1")
    with pytest.raises(SlotLost) as caught, at_work(source, tmp_path / "old"):
        pass
    named(caught.value, SlotLost, SLOT)
    assert "RESYNC NEEDED" in caught.value.next_step
    source.drop()
    with at_work(source, tmp_path / "new") as running:
        follows(running, database)


def test_a_slot_dropped_while_running_is_lost(
    source: PostgresSource, database: str, sql: Sql, tmp_path: Path
) -> None:
    with at_work(source, tmp_path, retry_s=0.5) as running:
        eventually_dumped(running)
        # The walsender is ended and the slot dropped before we are back.
        with psycopg.connect(database, autocommit=True) as connection:
            drop_under(connection, SLOT)
        named(failure_of(running), SlotLost, SLOT)


@req("D37")
@pytest.mark.parametrize("changes", [1, 50])
def test_a_slot_that_somebody_moved_past_our_log_is_lost_and_never_skipped_in_silence(
    source: PostgresSource, database: str, sql: Sql, tmp_path: Path, changes: int
) -> None:
    copied(source, tmp_path)
    free(database)
    for n in range(changes):
        sql(f"UPDATE t SET v = 'unseen {n}' WHERE id = 1")
    sql(f"SELECT pg_replication_slot_advance('{SLOT}', pg_current_wal_lsn())")
    moved = confirmed(database, SLOT)
    with at_work(source, tmp_path) as running:
        named(failure_of(running), SlotLost, "slots", str(moved - 1))
    assert confirmed(database, SLOT) == moved


def test_our_own_position_is_never_taken_for_a_foreign_one(
    source: PostgresSource, database: str, sql: Sql, tmp_path: Path
) -> None:
    """Right behind a commit, a window, a quiet stretch: wherever it stops, it goes on."""
    for n in range(5):
        with at_work(source, tmp_path) as running:
            sql(f"INSERT INTO t VALUES ({100 + n}, 'x')")
            if n % 2:
                running.state.submit("TABLE", running.state.progress()[0].table)
            follows(running, database)
            if n == 3:
                moved_to(database, position(database) - 200)
        assert running.error is None
        free(database)


@req("C60")
def test_a_slot_that_another_reader_holds_is_waited_for(
    source: PostgresSource, database: str, sql: Sql, tmp_path: Path
) -> None:
    copied(source, tmp_path)
    free(database)
    sql("INSERT INTO t VALUES (4, 'd')")
    object.__setattr__(source.settings, "slot_busy_s", 0.2)
    other = PostgresSource(database, name="slots")
    reader = other.open(FileRegistry(tmp_path / "schemas"))
    try:
        with pytest.raises(SourceUnavailable) as caught:
            source.open(FileRegistry(tmp_path / "schemas"))
        named(caught.value, SourceUnavailable, SLOT)
    finally:
        reader.close()
    with at_work(source, tmp_path) as running:
        follows(running, database)


@req("A-12", "C60")
def test_an_ended_walsender_is_reconnected_to(
    source: PostgresSource, database: str, sql: Sql, tmp_path: Path
) -> None:
    with at_work(source, tmp_path) as running:
        eventually_dumped(running)
        for n in range(3):
            sql(f"INSERT INTO t VALUES ({10 + n}, 'x')", END_READER)
            sql(f"UPDATE t SET v = 'after {n}' WHERE id = 1")
            follows(running, database)
        until(lambda: running.said("waiting for source", "connection"), "it said what it waits for")
    assert running.error is None


END_READER = (
    "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
    f"WHERE slot_name = '{SLOT}' AND active_pid IS NOT NULL"
)


def eventually_dumped(running: AtWork) -> None:
    until(running.dumped, "the first copy")


def drop_under(connection: psycopg.Connection, slot: str) -> None:
    """Drop a slot, whoever reads it."""

    def dropped() -> bool:
        connection.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
            "WHERE slot_name = %s AND active_pid IS NOT NULL",
            (slot,),
        )
        try:
            connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
        except psycopg.errors.ObjectInUse:
            return False
        return True

    until(dropped, "the slot is dropped")


def moved_to(url: str, end: int) -> None:
    """Wait until the slot was told of a position."""
    until(lambda: confirmed(url, SLOT) >= end, "the slot moved")
