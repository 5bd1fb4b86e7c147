"""Operations over time: each in one minute, whoever writes how often."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import StateError
from headrace.lake.counts import TableCounts
from headrace.lake.frontier import Manifest, TableEntry
from headrace.replicator.minutes import Active, MinuteKeeper, activity
from headrace.state.minutes import HOUR_S, MINUTE_S, MinuteStore
from tests.requirements import req

MINUTE_US = 60_000_000
BEGIN = 28_000_000
DAY_S = 86_400
KEPT_MINUTES = DAY_S // 60
KEPT_S = {MINUTE_S: DAY_S, HOUR_S: 3 * DAY_S}


def frontier(at_us: int, **counts: TableCounts) -> Manifest:
    entries = {
        f"public.{name}": TableEntry(1, 5, 1, "live", counts=of) for name, of in counts.items()
    }
    return Manifest(at_us, at_us, entries, at_us)


def shown(
    path: Path, newest: Manifest | None, from_at: int = 0, span_s: int = MINUTE_S
) -> list[Active]:
    store = MinuteStore(path)
    rows = store.read(from_at, span_s=span_s)
    store.close()
    return activity(rows, newest, from_at, span_s)


def inserts(found: list[Active]) -> dict[tuple[int, str], int]:
    return {(one.at - BEGIN, one.table): one.counts.inserts for one in found}


def test_minutes_tell_what_came_in_them(tmp_path: Path) -> None:
    path = tmp_path / "activity.db"
    keeper = MinuteKeeper(path, None, KEPT_S)
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
    hour = replace(one, at=BEGIN // 60, span_s=HOUR_S).to_json()
    assert (hour["changes_per_s"], hour["bytes_per_s"]) == (0.058, 1.667)
    assert hour["hour_s"] == BEGIN // 60 * 3_600


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_lost_or_told_twice_by_processes_that_come_and_go(
    seed: int, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    path = tmp_path / "activity.db"
    keeper, at_us = MinuteKeeper(path, None, KEPT_S), BEGIN * MINUTE_US
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
            keeper = MinuteKeeper(path, newest, KEPT_S)
    found, hours = shown(path, newest), shown(path, newest, span_s=HOUR_S)
    for name, count in sums.items():
        mine = [one.counts.inserts for one in found if one.table == f"public.{name}"]
        assert sum(mine) == count
        assert all(mine)
        coarse = [one.counts.inserts for one in hours if one.table == f"public.{name}"]
        assert sum(coarse) == count
        assert len(coarse) < len(mine)


def test_what_came_before_the_database_is_no_news_of_a_minute(tmp_path: Path) -> None:
    path, at_us = tmp_path / "activity.db", BEGIN * MINUTE_US
    keeper = MinuteKeeper(path, frontier(at_us, orders=TableCounts(1, 1_000)), KEPT_S)
    newest = frontier(at_us + 5, orders=TableCounts(1, 1_003), new=TableCounts(1, 4))
    keeper.take(newest)
    # It is written as what there was a minute before.
    assert inserts(shown(path, newest, BEGIN)) == {
        (0, "public.new"): 4,
        (0, "public.orders"): 3,
    }
    hours = shown(path, newest, BEGIN // 60, HOUR_S)
    assert {one.table: one.counts.inserts for one in hours} == {"public.new": 4, "public.orders": 3}


def test_a_day_is_kept_and_the_last_sums_of_tables_at_rest(tmp_path: Path) -> None:
    path = tmp_path / "activity.db"
    keeper = MinuteKeeper(path, None, KEPT_S)
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


@req("P70")
def test_what_is_fine_is_kept_for_short_and_what_is_coarse_for_long(tmp_path: Path) -> None:
    """Both at once, each for its own time: here minutes of an hour and hours of three days."""
    path = tmp_path / "activity.db"
    keeper = MinuteKeeper(path, None, {MINUTE_S: HOUR_S, HOUR_S: 3 * DAY_S})
    newest: Manifest | None = None
    for minute in range(0, 5 * 24 * 60, 10):
        newest = frontier((BEGIN + minute) * MINUTE_US, orders=TableCounts(1, minute + 10))
        keeper.take(newest)
    keeper.close()
    last = BEGIN + 5 * 24 * 60 - 10
    fine, coarse = shown(path, newest, last - 60 * 24), shown(path, newest, span_s=HOUR_S)
    assert [one.at for one in fine if one.at > last - 60] == [
        last - 60 + 10 * n for n in range(1, 7)
    ]
    assert len(fine) <= 9, "minutes from before the last hour are gone"
    told = [(one.at, one.counts.inserts, one.to_json()["hour_s"]) for one in coarse][1:]
    hours = range(last // 60 - 3 * 24, last // 60 + 1)
    # The last hour is not over.
    assert told[-len(hours) : -1] == [(hour, 60, hour * HOUR_S) for hour in hours[:-1]]
    assert len(told) <= len(hours) + 3, "hours from before three days are gone"


def test_counts_that_begin_anew_are_told_from_nothing() -> None:
    rows = [(BEGIN, "public.t", {"inserts": 9}), (BEGIN + 1, "public.t", {"inserts": 2})]
    assert [one.counts.inserts for one in activity(rows, None, BEGIN)] == [9, 2]


def test_a_database_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "activity.db"
    path.write_text("no database at all, whatever its name says")
    with pytest.raises(StateError, match=r"activity\.db"):
        MinuteStore(path)
