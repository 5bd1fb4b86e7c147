"""What a slot keeps at the source: measured, judged, and let go of while its own database is idle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.connection import connect
from headrace.sources.postgres.retained import Retained, RetainedWatch
from headrace.testing.postgres import EmbeddedPostgres
from tests.faults.faulty import at_work, confirmed
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = pytest.mark.postgres

SEGMENT = 16 << 20


@pytest.fixture
def tight_server() -> Iterator[EmbeddedPostgres]:
    """Run a server that throws log away early."""
    settings = {"max_slot_wal_keep_size": "96MB", "min_wal_size": "32MB", "max_wal_size": "64MB"}
    with EmbeddedPostgres(settings=settings) as server:
        yield server


def write_log(url: str, segments: int) -> None:
    """Fill some segments of the log, then let the server remove what nobody needs."""
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(segments):
            connection.execute(
                "SELECT pg_logical_emit_message(false, 'noise', repeat('x', 1000000)) "
                "FROM generate_series(1, 15)"
            )
        connection.execute("CHECKPOINT")


def test_a_slot_that_nobody_reads_is_measured_against_the_servers_limit_until_it_is_lost(
    tight_server: EmbeddedPostgres,
) -> None:
    source = PostgresSource(tight_server.create_database("shop"))
    tight_server.execute("CREATE TABLE t (id int PRIMARY KEY)", database="shop")
    source.prepare()
    watch = RetainedWatch(source.settings.slot_name)
    with connect(source.settings) as session:
        first = watch.look(session, 0.0)
        assert (first.wal_status, first.hours_left, first.unlimited) == ("reserved", None, False)
        assert first.safe_bytes is not None
        assert first.safe_bytes > 60 << 20
        write_log(source.settings.url, 2)
        then = watch.look(session, 3600.0)
        grown = then.retained_bytes - first.retained_bytes
        assert 2 * 15_000_000 < grown < 3 * SEGMENT
        # In one hour what was written; so the rest lasts that much longer.
        assert then.safe_bytes is not None
        assert then.bytes_per_s == pytest.approx(grown / 3600, rel=0.01)
        assert then.hours_left == pytest.approx(then.safe_bytes / grown, rel=0.02)
        assert "h left at this rate" in then.warning
        for _ in range(10):
            write_log(source.settings.url, 2)
        lost = watch.look(session, 7200.0)
    assert lost.wal_status == "lost"
    assert "RESYNC NEEDED" in lost.warning


def test_without_a_limit_the_words_say_that_the_disk_cannot_be_asked(
    database: str, sql: Sql
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    source = PostgresSource(database)
    source.prepare()
    with connect(source.settings) as session:
        seen = RetainedWatch(source.settings.slot_name).look(session, 0.0)
        missing = RetainedWatch("nobody").look(session, 0.0)
    assert (seen.unlimited, seen.safe_bytes, seen.hours_left) == (True, None, None)
    assert "cannot be asked" in str(seen)
    assert seen.warning == ""
    assert missing.wal_status == "missing"
    assert "RESYNC NEEDED" in missing.warning


def test_much_kept_log_and_a_slot_in_danger_are_warnings() -> None:
    assert Retained("s", "reserved", retained_bytes=9 << 30, unlimited=True).warning == ""
    assert "11.0 GiB" in Retained("s", "extended", retained_bytes=11 << 30, unlimited=True).warning
    assert "next checkpoint" in Retained("s", "unreserved").warning
    assert Retained("s", "reserved", safe_bytes=1, bytes_per_s=1.0, hours_left=25.0).warning == ""
    assert Retained("s", "reserved", safe_bytes=1, bytes_per_s=1.0, hours_left=23.0).warning


@req("T12")
def test_an_idle_database_lets_go_of_the_log_while_another_one_fills_it(
    tight_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    """Ours is silent; without movement the slot would be lost after 96 MB, of which twice as much is written."""
    url = tight_server.create_database("shop")
    busy = tight_server.create_database("busy")
    tight_server.execute("CREATE TABLE t (id int PRIMARY KEY)", database="shop")
    source = PostgresSource(url, name="idle")
    object.__setattr__(source.settings, "heartbeat_s", 0.1)
    with at_work(source, tmp_path) as running, connect(source.settings) as session:
        until(running.dumped, "the first copy")
        tight_server.execute("SELECT pg_create_logical_replication_slot('stuck', 'pgoutput')")
        watch = RetainedWatch("headrace_idle")
        most = 0
        for _ in range(6):
            write_log(busy, 2)
            with psycopg.connect(busy) as connection:
                row = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()
            assert row is not None
            end = int(row[0])
            until(lambda end=end: confirmed(url, "headrace_idle") >= end, "it moved on")  # type: ignore[misc]
            # The server notes what a slot may let go of when it logs its running transactions.
            tight_server.execute("CHECKPOINT")
            until(lambda: watch.look(session, 0.0).retained_bytes < 2 * SEGMENT, "it was let go of")
            most = max(most, watch.look(session, 0.0).retained_bytes)
        assert most < 2 * SEGMENT
        assert RetainedWatch("stuck").look(session, 0.0).wal_status == "lost"
        assert running.error is None
