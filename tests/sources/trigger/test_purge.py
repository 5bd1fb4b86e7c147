"""Changes stay until everybody has read them, and not for ever: purge, places, and what going back costs."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

import psycopg
import pytest

from headrace.errors import SlotLost
from headrace.sources.postgres.connection import connect
from headrace.sources.trigger.kept import KeptChanges
from headrace.sources.trigger.postgres import PostgresTriggerSource
from headrace.sources.trigger.postgres.purge import purge
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.sources.trigger.support import TriggerLog, opened, session, transactions_of
from tests.waiting import until

pytestmark = pytest.mark.postgres


def purged(source: PostgresTriggerSource) -> None:
    with connect(source.settings.database) as own:
        while purge(own, source.name):
            pass


def held(database: str) -> tuple[int, int, int]:
    """Return how many changes, entries and ticks are kept."""
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT (SELECT count(*) FROM headrace.txlog_changes), (SELECT count(*) FROM headrace.txlog), "
            "(SELECT count(*) FROM headrace.txlog_clock)"
        ).fetchone()
    assert row is not None
    return row


def looked(source: PostgresTriggerSource) -> KeptChanges:
    """Return what the watch says."""
    with contextlib.closing(source.log_watch()) as watch:
        return watch.look(0)


def read_all(log: TriggerLog) -> list[tuple[int, int]]:
    """Read everything and have it noted."""
    found = transactions_of(log.covered(acknowledge=True))
    log.reopen()
    return found


@req("D117", "D38")
def test_what_everybody_has_read_goes_and_nothing_else(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with (
        opened(database, tmp_path / "a", name="a", keep_s=0, abandon_s=60) as fast,
        opened(database, tmp_path / "b", name="b", keep_s=0, abandon_s=60) as slow,
        session(database) as open_,
    ):
        for n in range(5):
            sql(f"INSERT INTO t VALUES ({n})")
            fast.source.end_scn()
        read_all(fast)
        purged(fast.source)
        assert held(database) == (5, 5, 6)
        scn = transactions_of(slow.covered())[2][0]
        slow.reader.acknowledge(str(scn))
        slow.reopen()
        open_.execute("INSERT INTO t VALUES (50)")
        purged(fast.source)
        changes, entries, ticks = held(database)
        # The tick behind which the slow one reads on tells the next one's transactions, so it stays.
        assert (changes, entries, ticks) == (2, 2, 3)
        open_.commit()
        sql("INSERT INTO t VALUES (99)")
        assert slow.covered(acknowledge=True).changes("public.t") == [
            ("+I", 3),
            ("+I", 4),
            ("+I", 50),
            ("+I", 99),
        ]
        assert [row[1] for row in fast.covered(acknowledge=True).changes("public.t")] == [50, 99]
        slow.reopen()
        fast.reopen()
        purged(fast.source)
        assert held(database) == (0, 0, 1)
        sql("INSERT INTO t VALUES (100)")
        assert fast.covered().changes("public.t") == [("+I", 100)]


@req("D117")
def test_a_long_transaction_is_not_purged_before_it_is_read(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with (
        opened(database, tmp_path, keep_s=0, abandon_s=60) as log,
        session(database) as long,
    ):
        long.execute("INSERT INTO t VALUES (0)")
        for n in range(1, 4):
            sql(f"INSERT INTO t VALUES ({n})")
            read_all(log)
            purged(log.source)
        long.execute("INSERT INTO t VALUES (10)")
        long.commit()
        assert log.covered().changes("public.t") == [("+I", 0), ("+I", 10)]


@req("D117")
def test_what_is_kept_for_a_time_is_there_for_who_begins_later(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path, name="a", keep_s=3600) as log:
        sql("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)")
        first = read_all(log)
        purged(log.source)
        with opened(database, tmp_path, name="b", start="oldest", keep_s=3600) as late:
            assert transactions_of(late.covered()) == first
        with opened(database, tmp_path, name="c", keep_s=0) as now:
            sql("INSERT INTO t VALUES (3)")
            assert now.covered().changes("public.t") == [("+I", 3)]
        for name in ("b", "c"):
            PostgresTriggerSource(database, name=name).drop()
        sql("UPDATE headrace.txlog_clock SET at = at - interval '2 hours'")
        read_all(log)
        purged(log.source)
        assert held(database) == (0, 0, 1)


@req("D117")
def test_a_pipeline_that_went_away_does_not_keep_changes_for_ever(
    database: str, sql: Sql, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    gone = PostgresTriggerSource(database, name="gone", keep_s=0)
    gone.prepare()
    with opened(database, tmp_path, name="here", keep_s=0, abandon_s=3600) as log:
        sql("INSERT INTO t VALUES (1)")
        read_all(log)
        purged(log.source)
        assert held(database)[0] == 1
        sql(
            "UPDATE headrace.txlog_readers SET seen_at = seen_at - interval '200 hours' WHERE name = 'gone'"
        )
        with caplog.at_level(logging.WARNING):
            purged(log.source)
        assert "gone was not seen for 168 h" in caplog.text
        assert held(database)[0] == 0
        sql("INSERT INTO t VALUES (2)")
        assert log.covered().changes("public.t") == [("+I", 2)]
    with pytest.raises(SlotLost, match="away for too long"):
        gone.prepare()
    with pytest.raises(SlotLost, match="away for too long"):
        gone.acknowledged_scn()
    gone.prepare(fresh=True)
    assert gone.acknowledged_scn() > 0


@req("D117")
def test_a_reader_that_only_waits_shows_that_it_is_there_and_purges(
    database: str, sql: Sql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.sources.trigger import stream

    monkeypatch.setattr(stream, "_PURGE_S", 0.0)
    monkeypatch.setattr(stream, "_ALIVE_S", 0.0)
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path, keep_s=0, abandon_s=60) as log:
        sql("INSERT INTO t VALUES (1)")
        log.covered(acknowledge=True)
        sql("UPDATE headrace.txlog_readers SET seen_at = '2000-01-01'")

        def gone() -> bool:
            log.reader.poll(0.01)
            return held(database) == (0, 0, 1)

        until(gone, "what was read is purged")
        log.reader.keep_alive()
        with psycopg.connect(database) as connection:
            row = connection.execute(
                "SELECT seen_at > now() - interval '1 minute' FROM headrace.txlog_readers"
            ).fetchone()
        assert row == (True,)


@req("D38", "D121")
def test_going_back_to_the_beginning_costs_more_the_more_there_is(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """Databus' fetcher may go back to time zero; what that costs the source is measured."""
    sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    with opened(database, tmp_path / "first", name="first"):
        pass
    costs = []
    for turn in range(3):
        for n in range(20):
            first = 1000 * (20 * turn + n)
            sql(f"INSERT INTO t SELECT g, 0 FROM generate_series({first}, {first + 9}) g")
            PostgresTriggerSource(database).end_scn()
        name = f"back{turn}"
        with opened(database, tmp_path / name, name=name, start="oldest") as back:
            assert len(back.covered(acknowledge=True).changes("public.t")) == 200 * (turn + 1)
            # What it has cost is noted with the place.
            back.reopen()
            costs.append(looked(back.source))
    rows = [cost.fetch_rows for cost in costs]
    assert rows == [220, 440, 660]
    queries = [cost.fetch_queries for cost in costs]
    assert queries == sorted(set(queries))
    assert all(cost.fetch_seconds > 0 and cost.fetch_slow == 0 for cost in costs)
    assert all(cost.unread_transactions == 0 for cost in costs)
    assert costs[-1].kept_transactions == 60
    # Whoever stays at the end pays for what is new alone.
    with opened(database, tmp_path / "now", name="now") as now:
        sql("INSERT INTO t VALUES (-1, 0)")
        now.covered(acknowledge=True)
        now.reopen()
        assert looked(now.source).fetch_rows == 2


@req("D121")
def test_a_query_that_takes_long_is_counted_and_said(
    database: str, sql: Sql, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path, slow_query_s=0.0) as log:
        sql("INSERT INTO t VALUES (1)")
        with caplog.at_level(logging.WARNING):
            log.covered(acknowledge=True)
        log.reopen()
        assert "more than source.slow_query_s" in caplog.text
        kept = looked(log.source)
        assert kept.fetch_slow > 0
        assert kept.to_json()["fetch_slow"] == kept.fetch_slow
        assert "transactions" in str(kept)
        sql("DELETE FROM headrace.txlog_readers")
        assert "RESYNC NEEDED" in looked(log.source).warning
