"""What every trigger source promises, on each server: nothing is overtaken, cut, lost, kept for ever or read twice."""

from __future__ import annotations

import contextlib
import itertools
import logging
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ProtocolError, SlotLost, SourceUnavailable, WatermarkOutOfOrder
from headrace.model.mark import Mark, MarkKind
from headrace.model.schema import TableId
from headrace.sources.trigger import stream
from tests.requirements import req
from tests.sources.trigger.served import Served, Session, opened, session
from tests.sources.trigger.support import TriggerLog, transactions_of
from tests.waiting import until

T = "CREATE TABLE t (id int PRIMARY KEY, v int)"


@req("A-11")
@pytest.mark.parametrize(
    "columns", ["(n int, k int, id int, PRIMARY KEY (k, id))", "(id int PRIMARY KEY)", "(id int)"]
)
def test_a_view_names_the_order_of_a_key_as_chunks_do(served: Served, columns: str) -> None:
    served.sql(f"CREATE TABLE t {columns}")
    source, table = served.source(), TableId.parse(served.table)
    source.prepare()
    with contextlib.closing(source.chunks()) as reader, source.view([table]) as view:
        if "KEY" in columns:
            assert view.key_order(table) == reader.upper_bound(table).key_order != ""
        else:
            assert view.key_order(table) == ""


# -- the clock ------------------------------------------------------------------------------------


@req("D117")
def test_a_transaction_that_began_later_and_commits_first_overtakes_none(
    served: Served, tmp_path: Path
) -> None:
    """The one that commits last has the lower numbers of every change."""
    served.sql(T)
    with (
        opened(served, tmp_path) as log,
        session(served) as early,
        session(served) as late,
    ):
        early.execute("INSERT INTO t VALUES (1, 10)")
        late.execute("INSERT INTO t VALUES (2, 20)")
        late.commit()
        first = log.collect()
        assert first.changes(served.table) == [("+I", 2, 20)]
        early.execute("INSERT INTO t VALUES (3, 30)")
        early.commit()
        second = log.collect()
        assert second.changes(served.table) == [("+I", 1, 10), ("+I", 3, 30)]
        ((scn1, _),), ((scn2, _),) = transactions_of(first), transactions_of(second)
        assert scn1 < scn2


@req("D117")
def test_every_order_of_commits_gives_every_transaction_once_and_whole(
    served: Served, tmp_path: Path
) -> None:
    served.sql(T)
    with opened(served, tmp_path) as log:
        sessions = [served.session() for _ in range(3)]
        try:
            for turn, order in enumerate(itertools.permutations(range(3))):
                keys = [3 * turn + n for n in range(3)]
                for key, one in zip(keys, sessions, strict=True):
                    one.execute(f"INSERT INTO t VALUES ({key}, 1)")
                for n in order:
                    sessions[n].execute(f"UPDATE t SET v = 2 WHERE id = {keys[n]}")
                    sessions[n].commit()
                    came = log.collect().changes(served.table)
                    assert came == [("+I", keys[n], 1), ("-U", keys[n], 1), ("+U", keys[n], 2)]
        finally:
            for one in sessions:
                one.close()


@req("D117")
def test_who_has_seen_the_work_of_another_stands_behind_it(served: Served, tmp_path: Path) -> None:
    """In one tick: the second wrote first, then took a row from the first, which had committed meanwhile."""
    served.sql(T, "INSERT INTO t VALUES (1, 0), (2, 0)")
    with opened(served, tmp_path) as log, session(served) as first, session(served) as second:
        second.execute("UPDATE t SET v = 10 WHERE id = 2")
        first.execute("UPDATE t SET v = 1 WHERE id = 1")
        first.commit()
        second.execute("UPDATE t SET v = v + 10 WHERE id = 1")
        second.commit()
        changes = [row for row in log.collect().changes(served.table) if row[:2] == ("+U", 1)]
        assert changes == [("+U", 1, 1), ("+U", 1, 11)]


@req("D117")
def test_two_readers_who_look_at_their_own_times_find_the_same_numbers(
    served: Served, tmp_path: Path
) -> None:
    served.sql(T)
    with (
        opened(served, tmp_path / "a", name="a") as one,
        opened(served, tmp_path / "b", name="b") as two,
        session(served) as open_,
    ):
        open_.execute("INSERT INTO t VALUES (0, 0)")
        served.sql("INSERT INTO t VALUES (1, 1)")
        seen = transactions_of(one.covered(acknowledge=True))
        served.sql("INSERT INTO t VALUES (2, 2)")
        open_.commit()
        seen += transactions_of(one.covered(acknowledge=True))
        served.sql("INSERT INTO t VALUES (3, 3)")
        seen += transactions_of(one.covered(acknowledge=True))
        assert transactions_of(two.covered()) == seen
        assert len(seen) >= 3


@req("D117")
def test_strikers_at_one_moment_make_one_clock(served: Served, tmp_path: Path) -> None:
    served.sql(T)
    with opened(served, tmp_path) as log:
        errors: list[BaseException] = []

        def strike(first: int) -> None:
            try:
                for n in range(25):
                    served.sql(f"INSERT INTO t VALUES ({first + n}, 0)")
                    served.strike(log.source)
            except BaseException as error:  # noqa: BLE001 - shown by the test's own thread
                errors.append(error)

        threads = [threading.Thread(target=strike, args=(100 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert errors == []
        collected = log.covered()
        scns = [scn for scn, _ in transactions_of(collected)]
        assert scns == sorted(set(scns))
        keys = [row[1] for row in collected.changes(served.table)]
        assert sorted(keys) == sorted(100 * n + m for n in range(4) for m in range(25))


@req("D117")
def test_writers_in_every_order_end_in_the_sources_rows(served: Served, tmp_path: Path) -> None:
    """Sessions that overlap at random, with savepoints and rollbacks; each key's last image is the source's."""
    rng = random.Random(7)
    served.sql(T, *(f"INSERT INTO t VALUES ({n}, 0)" for n in range(20)))
    with opened(served, tmp_path) as log:
        copy = dict.fromkeys(range(20), 0)

        def take() -> None:
            for op, id_, v in log.covered(acknowledge=True).changes(served.table):
                if op[0] == "+":
                    copy[id_] = v
                elif copy.get(id_) == v:
                    del copy[id_]

        sessions = [served.session() for _ in range(4)]
        try:
            for step in range(300):
                n = rng.randrange(4)
                _act(served, sessions[n], rng, 4 * rng.randrange(5) + n, step)
                if step % 10 == 9:
                    take()
            for one in sessions:
                one.commit()
        finally:
            for one in sessions:
                one.close()
        take()
        assert copy == dict(served.query("SELECT id, v FROM t"))


def _act(served: Served, one: Session, rng: random.Random, key: int, step: int) -> None:
    act = rng.random()
    if act < 0.5:
        one.execute(served.upsert(key, step))
    elif act < 0.6:
        one.execute(f"DELETE FROM t WHERE id = {key}")
    elif act < 0.7:
        one.execute("SAVEPOINT s")
        one.execute(f"DELETE FROM t WHERE id = {key}")
        one.execute("ROLLBACK TO SAVEPOINT s")
    elif act < 0.9:
        one.commit()
    else:
        one.rollback()


@req("D118")
def test_polling_by_time_stamp_loses_what_commits_late(served: Served, tmp_path: Path) -> None:
    """The plainest of all captures, beside ours: a column with the time, and a query for what is younger."""
    now = "CURRENT_TIMESTAMP(6)"
    served.sql(
        f"CREATE TABLE t (id int PRIMARY KEY, v int, changed timestamp(6) NULL DEFAULT {now})"
    )
    with opened(served, tmp_path) as log, session(served) as slow:
        polls = polled(served)
        copy: dict[int, int] = {}
        slow.execute("INSERT INTO t (id, v) VALUES (1, 1)")
        served.sql("INSERT INTO t (id, v) VALUES (2, 2)")
        copy |= next(polls)
        # We look when the poller looks.
        ours = [row[:3] for row in log.collect().changes(served.table)]
        slow.commit()
        served.sql(
            "INSERT INTO t (id, v) VALUES (3, 3)",
            f"UPDATE t SET v = 30, changed = {now} WHERE id = 3",
        )
        served.sql("DELETE FROM t WHERE id = 2")
        copy |= next(polls)
        source = dict(served.query("SELECT id, v FROM t"))
        # The first row was stamped before the poller's last look and became visible after it, and nobody deletes.
        assert copy == {2: 2, 3: 30}
        assert source == {1: 1, 3: 30}
        ours += [row[:3] for row in log.collect().changes(served.table)]
        assert sorted(ours) == sorted(
            [("+I", 1, 1), ("+I", 2, 2), ("+I", 3, 3), ("-U", 3, 3), ("+U", 3, 30), ("-D", 2, 2)]
        )


def polled(served: Served) -> Iterator[dict[int, int]]:
    """Yield the rows that are younger than the youngest that was seen before."""
    last: Any = None
    while True:
        rows = served.query(served.younger(last))
        last = rows[-1][2] if rows else last
        yield {id_: v for id_, v, _ in rows}


# -- windows --------------------------------------------------------------------------------------


@req("D117", "H14")
def test_what_was_not_noted_comes_again_unchanged_and_in_place(
    served: Served, tmp_path: Path
) -> None:
    served.sql(T)
    with opened(served, tmp_path) as log, session(served) as late:
        late.execute("INSERT INTO t VALUES (0, 0)")
        served.sql("INSERT INTO t VALUES (1, 1)")
        first = log.covered()
        late.commit()
        served.sql("UPDATE t SET v = 2")
        first.items += log.covered().items
        log.reopen()
        served.sql("INSERT INTO t VALUES (9, 9)")
        again = log.covered()
        assert transactions_of(again)[: len(transactions_of(first))] == transactions_of(first)
        assert again.rows(served.table)[:-1] == first.rows(served.table)
        assert log.source.acknowledged_scn() < transactions_of(first)[0][0]
        for item in again.items:
            log.reader.acknowledge(item.position)
        log.reopen()
        assert log.source.acknowledged_scn() == transactions_of(again)[-1][0]
        assert log.collect().changes(served.table) == []


@req("D117")
def test_a_large_transaction_comes_in_pieces_of_bounded_size(
    served: Served, tmp_path: Path
) -> None:
    served.sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    source = served.source()
    object.__setattr__(source.settings, "block_rows", 1000)
    source.prepare()
    log = TriggerLog(source, tmp_path)
    try:
        rows = ", ".join(f"({n}, '{'x' * 100}')" for n in range(5000))
        served.sql(f"INSERT INTO t VALUES {rows}")
        collected = log.covered()
        pieces = [row for row in collected.index if row["changes"]]
        assert len(pieces) >= 5
        assert max(row["changes"] for row in pieces) <= 1001
        assert [row["last_piece"] for row in collected.index if row["last_piece"]] == [1]
        assert [cells[1] for cells in collected.changes(served.table)] == list(range(5000))
        # An open transaction is not covered before its last piece.
        covered = [item.block.covered_scn for item in collected.items]
        assert all(c < pieces[0]["scn"] for c in covered[:-1])
    finally:
        log.close()


@req("D117")
def test_marks_come_back_once_in_their_place_and_never_as_data(
    served: Served, tmp_path: Path
) -> None:
    served.sql(T)
    with opened(served, tmp_path, name="a") as log, opened(served, tmp_path, name="b") as other:
        served.sql("INSERT INTO t VALUES (1, 1)")
        other.writer.write(Mark(MarkKind.LOW, "theirs", "run"))
        served.sql("INSERT INTO t VALUES (2, 2)")
        first = log.collect()
        served.sql("INSERT INTO t VALUES (3, 3)")
        second = log.collect()
        assert [len(one.marks) for one in (first, second)] == [1, 1]
        assert first.changes(served.table) == [("+I", 1, 1), ("+I", 2, 2)]
        (mark,) = first.marks
        assert transactions_of(first)[-1][0] < mark.scn < transactions_of(second)[0][0]
        assert first.items[-1].block.covered_scn == mark.scn - 1


@pytest.mark.parametrize("content", ["rubbish", "[1, 2, 3]"])
def test_a_mark_that_nobody_of_us_wrote_stops_the_log(
    served: Served, tmp_path: Path, content: str
) -> None:
    served.sql(T)
    with opened(served, tmp_path) as log:
        log.writer.write(Mark(MarkKind.LOW, "ours", "run"))
        column = "`after`" if "triggers" in served.table else "after"
        served.sql(f"UPDATE headrace.txlog_changes SET {column} = '{content}'")
        with pytest.raises(WatermarkOutOfOrder, match="txlog_changes"):
            log.collect()


@pytest.mark.parametrize(
    "damage", ["DELETE FROM headrace.txlog_changes", "UPDATE headrace.txlog_changes SET op = 'X'"]
)
def test_damage_to_the_change_tables_is_named(served: Served, tmp_path: Path, damage: str) -> None:
    served.sql(T)
    with opened(served, tmp_path) as log:
        served.sql("INSERT INTO t VALUES (1, 1)")
        log.source.end_scn()
        served.sql(damage)
        with pytest.raises(ProtocolError) as raised:
            log.covered()
        assert raised.value.next_step


def test_a_cut_connection_is_named_and_nothing_is_lost(served: Served, tmp_path: Path) -> None:
    served.sql(T)
    with opened(served, tmp_path) as log:
        served.sql("INSERT INTO t VALUES (1, 1)")
        served.cut()
        with pytest.raises(SourceUnavailable):
            log.covered()
        log.reopen()
        assert log.covered().changes(served.table) == [("+I", 1, 1)]


def test_a_place_that_is_gone_is_a_lost_slot(served: Served, tmp_path: Path) -> None:
    served.sql(T)
    with opened(served, tmp_path) as log:
        served.sql("DELETE FROM headrace.txlog_readers", "INSERT INTO t VALUES (1, 1)")
        with pytest.raises(SlotLost, match="no place"):
            log.collect()
        with pytest.raises(SlotLost, match="somebody removed it"):
            log.source.acknowledged_scn()


# -- keeping and purging --------------------------------------------------------------------------


def read_all(log: TriggerLog) -> list[tuple[int, int]]:
    """Read everything and have it noted."""
    found = transactions_of(log.covered(acknowledge=True))
    log.reopen()
    return found


@req("D117", "D38")
def test_what_everybody_has_read_goes_and_nothing_else(served: Served, tmp_path: Path) -> None:
    served.sql(T)
    with (
        opened(served, tmp_path / "a", name="a", keep_s=0, abandon_s=60) as fast,
        opened(served, tmp_path / "b", name="b", keep_s=0, abandon_s=60) as slow,
        session(served) as open_,
    ):
        for n in range(5):
            served.sql(f"INSERT INTO t VALUES ({n}, 0)")
            fast.source.end_scn()
        read_all(fast)
        served.purge(fast.source)
        assert served.held() == (5, 6)
        scn = transactions_of(slow.covered())[2][0]
        slow.reader.acknowledge(str(scn))
        slow.reopen()
        open_.execute("INSERT INTO t VALUES (50, 0)")
        served.purge(fast.source)
        # The tick that everybody has behind him stays.
        assert served.held() == (2, 3)
        open_.commit()
        served.sql("INSERT INTO t VALUES (99, 0)")
        keys = [row[1] for row in slow.covered(acknowledge=True).changes(served.table)]
        assert keys == [3, 4, 50, 99]
        assert [row[1] for row in fast.covered(acknowledge=True).changes(served.table)] == [50, 99]
        slow.reopen()
        fast.reopen()
        served.purge(fast.source)
        assert served.held() == (0, 1)
        served.sql("INSERT INTO t VALUES (100, 0)")
        assert fast.covered().changes(served.table) == [("+I", 100, 0)]


@req("D117")
def test_a_long_transaction_is_neither_purged_before_it_is_read_nor_waited_for(
    served: Served, tmp_path: Path
) -> None:
    """Numbers are given, and changes removed, on both sides of those that are open."""
    served.sql(T)
    with opened(served, tmp_path, keep_s=0, abandon_s=60) as log, session(served) as long:
        for n in range(1, 4):
            long.execute(f"INSERT INTO t VALUES ({-n}, 0)")
            served.sql(f"INSERT INTO t VALUES ({n}, 0)")
            assert len(read_all(log)) == 1
            served.purge(log.source)
        assert served.held() == (0 if served.purges_beside_open else 3, 1)
        long.execute("INSERT INTO t VALUES (-10, 0)")
        long.commit()
        keys = [row[1] for row in log.covered().changes(served.table)]
        assert keys == [-1, -2, -3, -10]


@req("D117")
def test_what_is_kept_for_a_time_is_there_for_who_begins_later(
    served: Served, tmp_path: Path
) -> None:
    served.sql(T)
    with opened(served, tmp_path, name="a", keep_s=3600) as log:
        served.sql("INSERT INTO t VALUES (1, 0)", "INSERT INTO t VALUES (2, 0)")
        first = read_all(log)
        served.purge(log.source)
        with opened(served, tmp_path, name="b", start="oldest", keep_s=3600) as late:
            assert transactions_of(late.covered()) == first
        with opened(served, tmp_path, name="c", keep_s=0) as now:
            served.sql("INSERT INTO t VALUES (3, 0)")
            assert now.covered().changes(served.table) == [("+I", 3, 0)]
        for name in ("b", "c"):
            served.source(name=name).drop()
        served.sql(served.age(2)[0])
        read_all(log)
        served.purge(log.source)
        assert served.held() == (0, 1)


@req("D117")
def test_a_pipeline_that_went_away_does_not_keep_changes_for_ever(
    served: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served.sql(T)
    gone = served.source(name="gone", keep_s=0)
    gone.prepare()
    with opened(served, tmp_path, name="here", keep_s=0, abandon_s=3600) as log:
        served.sql("INSERT INTO t VALUES (1, 0)")
        read_all(log)
        served.purge(log.source)
        assert served.held()[0] == 1
        served.sql(f"{served.age(200)[1]} WHERE name = 'gone'")
        with caplog.at_level(logging.WARNING):
            served.purge(log.source)
        assert "gone was not seen for 168 h" in caplog.text
        assert served.held()[0] == 0
        served.sql("INSERT INTO t VALUES (2, 0)")
        assert log.covered().changes(served.table) == [("+I", 2, 0)]
    with pytest.raises(SlotLost, match="away for too long"):
        gone.prepare()
    with pytest.raises(SlotLost, match="away for too long"):
        gone.acknowledged_scn()
    gone.prepare(fresh=True)
    assert gone.acknowledged_scn() > 0


@req("D117")
def test_a_reader_that_only_waits_shows_that_it_is_there_and_purges(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_PURGE_S", 0.0)
    monkeypatch.setattr(stream, "_ALIVE_S", 0.0)
    served.sql(T)
    with opened(served, tmp_path, keep_s=0, abandon_s=60) as log:
        served.sql("INSERT INTO t VALUES (1, 0)")
        log.covered(acknowledge=True)
        served.sql("UPDATE headrace.txlog_readers SET seen_at = '2000-01-01'")

        def gone() -> bool:
            log.reader.poll(0.01)
            return served.held() == (0, 1)

        until(gone, "what was read is purged")
        log.reader.keep_alive()
        assert served.query("SELECT seen_at > '2001-01-01' FROM headrace.txlog_readers") in (
            [(True,)],
            [(1,)],
        )


@req("D38", "D121")
def test_going_back_to_the_beginning_costs_more_the_more_there_is(
    served: Served, tmp_path: Path
) -> None:
    """Databus' fetcher may go back to time zero; what that costs the source is measured."""
    served.sql(T)
    with opened(served, tmp_path / "first", name="first"):
        pass
    costs = []
    for turn in range(3):
        for n in range(20):
            first = 1000 * (20 * turn + n)
            rows = ", ".join(f"({first + m}, 0)" for m in range(10))
            served.sql(f"INSERT INTO t VALUES {rows}")
            served.source().end_scn()
        name = f"back{turn}"
        # However long the machine stalls, no query takes an hour.
        kept = {"start": "oldest", "slow_query_s": 3_600.0}
        with opened(served, tmp_path / name, name=name, **kept) as back:
            assert len(back.covered(acknowledge=True).changes(served.table)) == 200 * (turn + 1)
            # What it has cost is noted with the place.
            back.reopen()
            with contextlib.closing(back.source.log_watch()) as watch:
                costs.append(watch.look(0))
    rows_read = [cost.fetch_rows for cost in costs]
    assert [n - 200 * (turn + 1) for turn, n in enumerate(rows_read)] in ([20, 40, 60], [0, 0, 0])
    queries = [cost.fetch_queries for cost in costs]
    assert queries == sorted(set(queries))
    assert all(cost.fetch_seconds > 0 and cost.fetch_slow == 0 for cost in costs)
    assert all(cost.unread_transactions == 0 for cost in costs)
    assert costs[-1].kept_transactions == 60


@req("D121")
def test_a_query_that_takes_long_is_counted_and_said(
    served: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served.sql(T)
    with opened(served, tmp_path, slow_query_s=0.0) as log:
        served.sql("INSERT INTO t VALUES (1, 0)")
        with caplog.at_level(logging.WARNING):
            log.covered(acknowledge=True)
        log.reopen()
        assert "more than source.slow_query_s" in caplog.text
        with contextlib.closing(log.source.log_watch()) as watch:
            kept = watch.look(0)
            assert kept.fetch_slow > 0
            assert kept.to_json()["fetch_slow"] == kept.fetch_slow
            served.sql("DELETE FROM headrace.txlog_readers")
            assert "RESYNC NEEDED" in watch.look(0).warning
