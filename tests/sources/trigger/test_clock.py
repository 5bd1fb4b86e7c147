"""The commit clock: what a snapshot sees first, in every order of beginning, writing and committing."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SlotLost
from headrace.model.snapshot import TransactionSnapshot
from headrace.sources.postgres.connection import connect
from headrace.sources.trigger.postgres.clock import Striker, newly_seen, tick_behind
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.sources.trigger.support import opened, session, transactions_of


@st.composite
def two_snapshots(draw: st.DrawFn) -> tuple[TransactionSnapshot, TransactionSnapshot]:
    """Give a snapshot and a later one of the same server."""
    first_max = draw(st.integers(5, 20))
    running = draw(st.sets(st.integers(3, first_max - 1)))
    then_max = draw(st.integers(first_max, 30))
    still = draw(st.sets(st.sampled_from(sorted(running)))) if running else set()
    fresh = draw(st.sets(st.integers(first_max, then_max - 1))) if then_max > first_max else set()

    def snapshot(xmax: int, open_: set[int]) -> TransactionSnapshot:
        return TransactionSnapshot(min(open_, default=xmax), xmax, frozenset(open_))

    return snapshot(first_max, running), snapshot(then_max, still | fresh)


@req("D117")
@given(two_snapshots())
def test_the_ranges_are_what_one_sees_and_the_other_does_not(
    pair: tuple[TransactionSnapshot, TransactionSnapshot],
) -> None:
    before, now = pair
    ids = np.arange(0, 40, dtype=np.int64)
    wanted = ids[(now.sees(ids, ids) == 1) & (before.sees(ids, ids) == 0)].tolist()
    ranges = newly_seen(before, now)
    assert [xid for low, high in ranges for xid in range(low, high)] == wanted
    assert all(low < high for low, high in ranges)
    assert ranges == sorted(ranges)


pytestmark = pytest.mark.postgres


@req("D117")
def test_a_transaction_that_began_later_and_commits_first_overtakes_none(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """The one that commits last has the lower id and the lower numbers of every change."""
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with (
        opened(database, tmp_path) as log,
        session(database) as early,
        session(database) as late,
    ):
        early.execute("INSERT INTO t VALUES (1, 'began first')")
        late.execute("INSERT INTO t VALUES (2, 'began later')")
        late.commit()
        first = log.collect()
        assert first.changes("public.t") == [("+I", 2, "began later")]
        early.execute("INSERT INTO t VALUES (3, 'more')")
        early.commit()
        second = log.collect()
        assert second.changes("public.t") == [("+I", 1, "began first"), ("+I", 3, "more")]
        ((scn1, xid1),), ((scn2, xid2),) = transactions_of(first), transactions_of(second)
        assert scn1 < scn2
        assert xid1 > xid2


@req("D117")
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_every_order_of_commits_gives_every_transaction_once_and_whole(
    database: str, sql: Sql, tmp_path: Path, order: tuple[int, ...]
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    with opened(database, tmp_path) as log:
        sessions = [psycopg.connect(database) for _ in order]
        try:
            for n, one in enumerate(sessions):
                one.execute(f"INSERT INTO t VALUES ({n}, 1)".encode())
            came = []
            for n in order:
                sessions[n].execute(f"UPDATE t SET v = 2 WHERE id = {n}".encode())
                sessions[n].commit()
                came.append(log.collect().changes("public.t"))
        finally:
            for one in sessions:
                one.close()
        assert came == [[("+I", n, 1), ("-U", n, 1), ("+U", n, 2)] for n in order]


@req("D117")
def test_who_has_seen_the_work_of_another_stands_behind_it(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """In one tick: the second wrote first, then took a row from the first, which had committed meanwhile."""
    sql("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 0), (2, 0)")
    with (
        opened(database, tmp_path) as log,
        session(database) as first,
        session(database) as second,
    ):
        second.execute("UPDATE t SET v = 10 WHERE id = 2")
        first.execute("UPDATE t SET v = 1 WHERE id = 1")
        first.commit()
        second.execute("UPDATE t SET v = v + 10 WHERE id = 1")
        second.commit()
        changes = [row for row in log.collect().changes("public.t") if row[:2] == ("+U", 1)]
        assert changes == [("+U", 1, 1), ("+U", 1, 11)]


@req("D117")
def test_constraints_that_are_checked_at_once_do_not_pull_a_transaction_forward(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """It draws its number with its first change then, before it waits for the other's row."""
    sql("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 0), (2, 0)")
    with (
        opened(database, tmp_path) as log,
        session(database) as first,
        session(database) as second,
    ):
        second.execute("SET CONSTRAINTS ALL IMMEDIATE")
        second.execute("UPDATE t SET v = 10 WHERE id = 2")
        first.execute("UPDATE t SET v = 1 WHERE id = 1")
        first.commit()
        second.execute("UPDATE t SET v = v + 10 WHERE id = 1")
        second.commit()
        collected = log.collect()
        assert len(transactions_of(collected)) == 2
        changes = [row for row in collected.changes("public.t") if row[:2] == ("+U", 1)]
        assert changes == [("+U", 1, 1), ("+U", 1, 11)]


@req("D117")
def test_two_readers_who_look_at_their_own_times_find_the_same_numbers(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    with (
        opened(database, tmp_path / "a", name="a") as one,
        opened(database, tmp_path / "b", name="b") as two,
        session(database) as open_,
    ):
        open_.execute("INSERT INTO t VALUES (0, 0)")
        sql("INSERT INTO t VALUES (1, 1)")
        seen = transactions_of(one.covered(acknowledge=True))
        sql("INSERT INTO t VALUES (2, 2)")
        open_.commit()
        sql("INSERT INTO t VALUES (3, 3)")
        seen += transactions_of(one.covered(acknowledge=True))
        assert transactions_of(two.covered()) == seen
        assert len(seen) == 4


@req("D117")
def test_strikers_at_one_moment_make_one_clock(database: str, sql: Sql, tmp_path: Path) -> None:
    sql("CREATE TABLE t (id serial PRIMARY KEY)")
    with opened(database, tmp_path) as log:
        settings = log.source.settings.database
        errors: list[BaseException] = []

        def strike(count: int) -> None:
            try:
                striker = Striker()
                with connect(settings) as own, psycopg.connect(database, autocommit=True) as other:
                    for _ in range(count):
                        other.execute("INSERT INTO t DEFAULT VALUES")
                        striker.strike(own)
            except BaseException as error:  # noqa: BLE001 - shown by the test's own thread
                errors.append(error)

        threads = [threading.Thread(target=strike, args=(40,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert errors == []
        scns = [scn for scn, _ in transactions_of(log.covered())]
        assert len(scns) == len(set(scns)) == 160
        assert scns == sorted(scns)


@req("D117")
def test_a_clock_that_lacks_a_tick_says_so(database: str, sql: Sql, tmp_path: Path) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path) as log:
        for n in range(3):
            sql(f"INSERT INTO t VALUES ({n})")
            log.source.end_scn()
        sql("DELETE FROM headrace.txlog_clock WHERE after_scn < 2")
        with connect(log.source.settings.database) as own:
            assert tick_behind(own, 4) is None
            found = tick_behind(own, 3)
            assert found is not None
            assert found[0].last_scn == 4
            with pytest.raises(SlotLost, match="purged"):
                tick_behind(own, 2)
            with pytest.raises(SlotLost, match="begins behind"):
                tick_behind(own, 0)
            with pytest.raises(SlotLost, match="ends before"):
                tick_behind(own, 9)
            sql("DELETE FROM headrace.txlog_clock")
            with pytest.raises(SlotLost, match="empty"):
                Striker().strike(own)


@req("D118")
def test_polling_by_time_stamp_loses_what_commits_late(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """The plainest of all captures, beside ours: a column with the time, and a query for what is younger."""
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v int, changed timestamptz NOT NULL DEFAULT clock_timestamp())"
    )
    with (
        opened(database, tmp_path) as log,
        psycopg.connect(database, autocommit=True) as poller,
        session(database) as slow,
    ):
        polls = polled(poller)
        copy: dict[int, int] = {}
        slow.execute("INSERT INTO t (id, v) VALUES (1, 1)")
        sql("INSERT INTO t (id, v) VALUES (2, 2)")
        copy |= next(polls)
        slow.commit()
        sql(
            "INSERT INTO t (id, v) VALUES (3, 3)",
            "UPDATE t SET v = 30, changed = clock_timestamp() WHERE id = 3",
        )
        sql("DELETE FROM t WHERE id = 2")
        copy |= next(polls)
        source: dict[int, int] = dict(poller.execute("SELECT id, v FROM t").fetchall())
        # The first row was stamped before the poller's last look and became visible after it, and nobody deletes.
        assert copy == {2: 2, 3: 30}
        assert source == {1: 1, 3: 30}
        ours = [row[:3] for row in log.collect().changes("public.t")]
        assert sorted(ours) == sorted(
            [("+I", 1, 1), ("+I", 2, 2), ("+I", 3, 3), ("-U", 3, 3), ("+U", 3, 30), ("-D", 2, 2)]
        )


def polled(connection: psycopg.Connection) -> Iterator[dict[int, int]]:
    """Yield the rows that are younger than the youngest that was seen before."""
    last: Any = "-infinity"
    while True:
        rows = connection.execute(
            "SELECT id, v, changed FROM t WHERE changed > %s::timestamptz ORDER BY changed", (last,)
        ).fetchall()
        last = rows[-1][2] if rows else last
        yield {id_: v for id_, v, _ in rows}


@req("D117")
def test_writers_in_every_order_end_in_the_sources_rows(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """Sessions that overlap at random, with savepoints and rollbacks; each key's last image is the source's."""
    rng = random.Random(7)
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        "INSERT INTO t SELECT g, 0 FROM generate_series(0, 19) g",
    )
    with opened(database, tmp_path) as log:
        copy = dict.fromkeys(range(20), 0)
        sessions = [psycopg.connect(database) for _ in range(4)]
        try:
            for step in range(300):
                n = rng.randrange(4)
                one = sessions[n]
                key = 4 * rng.randrange(5) + n
                act = rng.random()
                if act < 0.5:
                    one.execute(
                        "INSERT INTO t VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET v = %s",
                        (key, step, step),
                    )
                elif act < 0.6:
                    one.execute("DELETE FROM t WHERE id = %s", (key,))
                elif act < 0.7:
                    with one.transaction(force_rollback=True):
                        one.execute("DELETE FROM t WHERE id = %s", (key,))
                elif act < 0.9:
                    one.commit()
                else:
                    one.rollback()
                if step % 10 == 9:
                    for op, id_, v in log.covered(acknowledge=True).changes("public.t"):
                        if op[0] == "+":
                            copy[id_] = v
                        elif copy.get(id_) == v:
                            del copy[id_]
            for one in sessions:
                one.commit()
        finally:
            for one in sessions:
                one.close()
        for op, id_, v in log.covered().changes("public.t"):
            if op[0] == "+":
                copy[id_] = v
            elif copy.get(id_) == v:
                del copy[id_]
        with psycopg.connect(database) as connection:
            assert copy == dict(connection.execute("SELECT id, v FROM t").fetchall())
