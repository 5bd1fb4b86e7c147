"""The commit clock: what a snapshot sees first, in every order of beginning, writing and committing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
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
