"""The source becomes another one: promoted, restored, set back; its SCNs rise, and nothing is skipped in silence."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from headrace.changelog import ChangeLogReader
from headrace.errors import SlotLost, SourceReplaced
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.lsn import parse_lsn
from tests.faults.faulty import PUBLIC_T, at_work, confirmed, copied, failure_of, follows, named
from tests.integration.lives import Server, begun_again, life_of, one
from tests.requirements import req
from tests.waiting import until

pytestmark = pytest.mark.postgres

SLOT = "headrace_life"


def filled(server: Server) -> str:
    url = server.create_database("shop")
    server.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT n, 'first' FROM generate_series(1, 9) n",
        database="shop",
    )
    return url


def write(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def rising(folder: Path) -> list[int]:
    """Return the SCNs of the change log's transactions, which must rise."""
    scns = [
        int(scn)
        for block in ChangeLogReader(folder / "changelog").blocks(0)
        for scn in block.index["scn"][block.index["last_piece"] == 1]
    ]
    assert scns == sorted(set(scns))
    return scns


def _kept(primary: Server, standby: Server) -> bool:
    # The standby takes a slot over from where its own log can be decoded.
    primary.execute("SELECT pg_log_standby_snapshot()")
    query = "SELECT synced AND NOT temporary FROM pg_replication_slots WHERE slot_name = '%s'"
    return one(standby.url(), query % SLOT) is True


@req("N24")
def test_a_promoted_standby_with_the_slot_kept_in_step_is_followed_without_a_new_copy(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    with Server(tmp_path / "primary") as primary:
        url = filled(primary)
        primary.execute("SELECT pg_create_physical_replication_slot('standby')")
        source = PostgresSource(url, name="life")
        object.__setattr__(source.settings, "failover", True)
        object.__setattr__(source.settings, "heartbeat_s", 0.1)
        follow = {"primary_slot_name": "standby", "sync_replication_slots": "on"}
        standby = primary.standby(tmp_path / "standby", follow)
        primary.execute("ALTER SYSTEM SET synchronized_standby_slots = 'standby'")
        primary.execute("SELECT pg_reload_conf()")
        with standby:
            with at_work(source, state) as running:
                follows(running, url)
                write(url, "UPDATE t SET v = 'before' WHERE id < 4", "DELETE FROM t WHERE id = 9")
                follows(running, url)
                until(lambda: _kept(primary, standby), "the standby keeps the slot")
                # What came last is not in the standby's slot yet: it is sent again after the fail-over.
                write(url, "INSERT INTO t VALUES (20, 'last words')")
                follows(running, url)
            before = rising(state)
            primary.kill()
            standby.promote()
            url = standby.url("shop")
            source = PostgresSource(url, name="life")
            write(url, "INSERT INTO t VALUES (21, 'new life')", "UPDATE t SET v = 'x' WHERE id = 2")
            with at_work(source, state) as running:
                follows(running, url)
                assert running.error is None
                assert len(running.state.requests()) == 1, "nothing was copied again"
            after = rising(state)
            assert after[: len(before)] == before
            life = life_of(state)
            assert life.name.endswith("/2")
            assert life.offset == 0


@req("N24")
@pytest.mark.long
def test_a_promoted_standby_without_the_slot_is_never_skipped_over(tmp_path: Path) -> None:
    """PostgreSQL 16 keeps no slots on standbys: it stops with the reason, and recovers when told to."""
    state = tmp_path / "state"
    with Server(tmp_path / "primary", version=16) as primary:
        url = filled(primary)
        source = PostgresSource(url, name="life")
        standby = primary.standby(tmp_path / "standby", {})
        with standby:
            copied(source, state)
            end = parse_lsn(str(one(url, "SELECT pg_current_wal_lsn()::text")))
            until(
                lambda: (
                    parse_lsn(str(one(standby.url(), "SELECT pg_last_wal_replay_lsn()::text")))
                    >= end
                ),
                "the standby has it all",
            )
            primary.kill()
            standby.promote()
            url = standby.url("shop")
            # Nobody reads this: no slot holds it.
            write(url, "DELETE FROM t WHERE id < 3", "UPDATE t SET v = 'unread' WHERE id = 5")
            source = PostgresSource(url, name="life")
            with pytest.raises(SlotLost) as caught, at_work(source, state):
                pass
            named(caught.value, SlotLost, SLOT)
            assert "headrace resync" in caught.value.next_step
            begun_again(source, state)
            with at_work(source, state) as running:
                follows(running, url)
                write(url, "INSERT INTO t VALUES (30, 'after')")
                follows(running, url)
            rising(state)
            assert life_of(state).name.endswith("/2")


@req("P06", "H26")
def test_a_restored_base_backup_is_followed_and_rows_that_vanished_vanish(tmp_path: Path) -> None:
    """The backup lacks slots and the newest rows; its log begins anew below what was captured."""
    state = tmp_path / "state"
    with Server(tmp_path / "old") as old:
        url = filled(old)
        source = PostgresSource(url, name="life")
        copied(source, state)
        old.base_backup(tmp_path / "backup")
        with at_work(source, state) as running:
            write(
                url,
                "INSERT INTO t SELECT n, 'lost later ' || repeat('x', 5000) FROM generate_series(100, 600) n",
                "DELETE FROM t WHERE id = 1",
            )
            follows(running, url)
    before = rising(state)
    with Server(tmp_path / "backup") as restored:
        url = restored.url("shop")
        source = PostgresSource(url, name="life")
        with pytest.raises(SlotLost), at_work(source, state):
            pass
        # Even with a slot of that name there: the log ends before what was captured.
        source.prepare(fresh=True)
        with at_work(source, state) as running:
            named(failure_of(running), SourceReplaced, "life", "older state")
        life = begun_again(source, state)
        assert life.offset > 0
        with at_work(source, state) as running:
            follows(running, url)
            write(url, "UPDATE t SET v = 'second life' WHERE id = 1")
            follows(running, url)
            assert running.content(PUBLIC_T).total() == 9
        # The offset is kept: a restart counts on.
        with at_work(source, state) as running:
            write(url, "INSERT INTO t VALUES (40, 'third start')")
            follows(running, url)
    after = rising(state)
    assert after[: len(before)] == before
    assert life_of(state) == life


@req("P06", "H26")
@pytest.mark.parametrize(
    "grown",
    [pytest.param(False, id="behind", marks=pytest.mark.long), pytest.param(True, id="grown")],
)
def test_a_source_set_back_with_its_slot_is_told_by_what_it_sends_again(
    tmp_path: Path, grown: bool
) -> None:
    """A cold copy keeps slot, system and timeline: what it writes now lies where we hold something else."""
    state = tmp_path / "state"
    with Server(tmp_path / "old") as old:
        url = filled(old)
        copied(PostgresSource(url, name="life"), state)
        old.stop()
        old.cold_copy(tmp_path / "copy")
        old.start()
        with at_work(PostgresSource(url, name="life"), state) as running:
            write(url, *(f"INSERT INTO t VALUES ({100 + n}, 'lost')" for n in range(20)))
            follows(running, url)
            held = running.reader.tail().complete_scn
    with Server(tmp_path / "copy") as restored:
        url = restored.url("shop")
        assert confirmed(url, SLOT) < held
        write(url, "INSERT INTO t VALUES (7000, 'other')")
        if grown:
            write(url, *(f"INSERT INTO t VALUES ({200 + n}, 'other')" for n in range(400)))
            assert parse_lsn(str(one(url, "SELECT pg_current_wal_lsn()::text"))) > held
        source = PostgresSource(url, name="life")
        with at_work(source, state) as running:
            named(failure_of(running), SourceReplaced, "life", "older state")
            assert running.reader.tail().complete_scn == held
        begun_again(source, state)
        with at_work(source, state) as running:
            follows(running, url)
    rising(state)


@pytest.mark.long
def test_a_standby_that_lacked_what_was_captured_is_refused(tmp_path: Path) -> None:
    """It was promoted before it received everything: its timeline leaves ours below what we hold."""
    state = tmp_path / "state"
    with Server(tmp_path / "primary") as primary:
        url = filled(primary)
        standby = primary.standby(tmp_path / "standby", {})
        with standby:
            until(
                lambda: one(standby.url("shop"), "SELECT count(*) FROM t") == 9, "it has the table"
            )
            standby.promote()
            copied(PostgresSource(url, name="life"), state)
            url = standby.url("shop")
            source = PostgresSource(url, name="life")
            source.prepare(fresh=True)
            with at_work(source, state) as running:
                error = named(failure_of(running), SourceReplaced, "life", "left timeline 1")
                assert "RESYNC NEEDED" in error.message
            begun_again(source, state)
            with at_work(source, state) as running:
                follows(running, url)
            rising(state)
