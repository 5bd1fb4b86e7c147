"""Operations over time: each in one minute, whoever writes how often."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from headrace.errors import StateError
from headrace.lake.counts import TableCounts
from headrace.lake.frontier import Manifest, TableEntry
from headrace.replicator.minutes import KEPT_MINUTES, Active, MinuteKeeper, activity
from headrace.state.minutes import MinuteStore
from tests.requirements import req

MINUTE_US = 60_000_000
BEGIN = 28_000_000


def frontier(at_us: int, **counts: TableCounts) -> Manifest:
    entries = {
        f"public.{name}": TableEntry(1, 5, 1, "live", counts=of) for name, of in counts.items()
    }
    return Manifest(at_us, at_us, entries, at_us)


def shown(path: Path, newest: Manifest | None, from_minute: int = 0) -> list[Active]:
    store = MinuteStore(path)
    rows = store.read(from_minute)
    store.close()
    return activity(rows, newest, from_minute)


def inserts(found: list[Active]) -> dict[tuple[int, str], int]:
    return {(one.minute - BEGIN, one.table): one.counts.inserts for one in found}


def test_minutes_tell_what_came_in_them(tmp_path: Path) -> None:
    path = tmp_path / "activity.db"
    keeper = MinuteKeeper(path, None)
    begin = BEGIN * MINUTE_US
    newest = None
    for at_us, orders, items in ((1, 2, 0), (5, 7, 1), (MINUTE_US, 9, 1), (5 * MINUTE_US, 9, 4)):
        newest = frontier(begin + at_us, orders=TableCounts(1, orders), items=TableCounts(1, items))
        keeper.take(newest)
    wanted = {
        (0, "public.orders"): 7,
        (0, "public.items"): 1,
        (1, "public.orders"): 2,
        (5, "public.items"): 3,
    }
    # The newest frontier need not be written yet.
    assert inserts(shown(path, newest)) == wanted
    keeper.close()
    assert inserts(shown(path, newest)) == wanted
    assert inserts(shown(path, newest, BEGIN + 1)) == {k: v for k, v in wanted.items() if k[0]}


@req("C15")
def test_speed_is_told_in_changes_and_bytes_per_second() -> None:
    one = Active(BEGIN, "public.orders", TableCounts(inserts=30, updates=90, rows=210, bytes=6_000))
    said = one.to_json()
    assert (said["changes_per_s"], said["bytes_per_s"]) == (3.5, 100.0)
    assert said["minute_s"] == BEGIN * 60


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_lost_or_told_twice_by_processes_that_come_and_go(
    seed: int, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    path = tmp_path / "activity.db"
    keeper, at_us = MinuteKeeper(path, None), BEGIN * MINUTE_US
    sums: Counter[str] = Counter()
    newest: Manifest | None = None
    for _ in range(300):
        at_us += rng.choice([1_000, 1_000_000, 30_000_000, 200_000_000])
        sums[rng.choice("ab")] += rng.randint(0, 5)
        newest = frontier(at_us, **{name: TableCounts(1, count) for name, count in sums.items()})
        if rng.random() < 0.9:
            # Some come and go between two looks.
            keeper.take(newest)
        if rng.random() < 0.1:
            if rng.random() < 0.5:
                keeper.close()
            keeper = MinuteKeeper(path, newest)
    found = shown(path, newest)
    for name, count in sums.items():
        mine = [one.counts.inserts for one in found if one.table == f"public.{name}"]
        assert sum(mine) == count
        assert all(mine)


def test_what_came_before_the_database_is_no_news_of_a_minute(tmp_path: Path) -> None:
    path, at_us = tmp_path / "activity.db", BEGIN * MINUTE_US
    keeper = MinuteKeeper(path, frontier(at_us, orders=TableCounts(1, 1_000)))
    newest = frontier(at_us + 5, orders=TableCounts(1, 1_003), new=TableCounts(1, 4))
    keeper.take(newest)
    # It is written as what there was a minute before.
    assert inserts(shown(path, newest, BEGIN)) == {
        (0, "public.new"): 4,
        (0, "public.orders"): 3,
    }


def test_a_day_is_kept_and_the_last_sums_of_tables_at_rest(tmp_path: Path) -> None:
    path = tmp_path / "activity.db"
    keeper = MinuteKeeper(path, None)
    resting = TableCounts(1, 50)
    newest: Manifest | None = None
    for hour in range(60):
        at_us = (BEGIN + 60 * hour) * MINUTE_US
        newest = frontier(at_us, orders=TableCounts(1, hour + 1), resting=resting)
        keeper.take(newest)
    keeper.close()
    store = MinuteStore(path)
    rows = store.read(0)
    store.close()
    last = BEGIN + 60 * 59
    assert min(m for m, table, _ in rows if table == "public.orders") >= last - KEPT_MINUTES - 62
    assert len(rows) < 60 * 2
    # What rests is as it was, and is not told anew.
    found = shown(path, newest, last - KEPT_MINUTES)
    assert {one.table for one in found} == {"public.orders"}
    assert [one.counts.inserts for one in found] == [1] * 25


def test_counts_that_begin_anew_are_told_from_nothing() -> None:
    rows = [(BEGIN, "public.t", {"inserts": 9}), (BEGIN + 1, "public.t", {"inserts": 2})]
    assert [one.counts.inserts for one in activity(rows, None, BEGIN)] == [9, 2]


def test_a_database_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "activity.db"
    path.write_text("no database at all, whatever its name says")
    with pytest.raises(StateError, match=r"activity\.db"):
        MinuteStore(path)
