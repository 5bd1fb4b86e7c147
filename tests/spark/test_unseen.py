"""A table whose target cannot be looked at when the job starts harms no other, and begins when it can be."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.errors import ChangeLogLost, TargetError
from headrace.lake.copies import Copy
from headrace.lake.delta_log import DeltaTable
from headrace.lake.errors import CorruptTable
from headrace.lake.frontier import FrontierStore, TableEntry
from headrace.model.block import SystemKind
from headrace.spark.at_work import Patience
from headrace.spark.job import ApplySettings, run_apply
from headrace.spark.status import ApplyStatus
from headrace.testing.notation import table_of
from tests.requirements import req
from tests.spark.log import Log, lent
from tests.spark.test_left_behind import BAD, GOOD, Faulty, Life

UNREAD = CorruptTable("its log does not read", next_step="mend it")


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    """Give two live tables."""
    made = Life(tmp_path, Faulty(), Patience(for_s=3_600.0, longest_s=600.0), max_rows=4)
    made.write(BAD)
    made.begin()
    yield from lent(made)
    made.applier.close()


def entry(life: Life) -> TableEntry:
    """Return what the newest frontier says of the table."""
    manifest = life.frontier.latest()
    assert manifest is not None
    return manifest.tables[str(BAD.table)]


def look_again(life: Life) -> None:
    life.target.unread = None
    life.wait(5)


@req("C60")
def test_the_others_go_on_and_it_comes_back_with_all_that_it_missed(life: Life) -> None:
    before = entry(life)
    life.target.unread, life.target.steps = UNREAD, {}
    life.restart()
    life.log.write(GOOD, "+I(1,b)")
    life.log.write(BAD, "+I(1,b)")
    life.process()
    assert (life.state(GOOD), life.state(BAD), life.error()) == ("live", "failing", "CorruptTable")
    assert (entry(life).version, entry(life).applied_scn) == (before.version, before.applied_scn)
    look_again(life)
    life.log.write(BAD, "+I(2,c)")
    life.process()
    assert life.state(BAD) == "live"
    assert sum(life.target.steps[BAD.table]) == 2
    assert entry(life).complete_scn == before.complete_scn


def test_it_stays_so_from_start_to_start(life: Life) -> None:
    life.target.unread = UNREAD
    life.restart()
    life.log.write(BAD, "+I(1,b)")
    life.process()
    life.restart()
    life.process()
    life.target.unread = None
    life.restart()
    life.process()
    assert life.state(BAD) == "live"
    assert life.target.steps[BAD.table] == [1, 1]


def test_no_frontier_shows_what_it_committed_before_the_others_have_it_too(life: Life) -> None:
    middle = life.log.write(GOOD, "+I(1,b)")
    ahead = life.log.write(BAD, "+I(1,b)")
    # It died between the table's commit and the frontier.
    committed = replace(life.target.states[BAD.table], version=ahead, applied_scn=ahead)
    life.target.states[BAD.table] = committed
    life.target.unread = UNREAD
    life.restart()
    life.applier.process(life.scn, middle)
    life.scn = middle
    look_again(life)
    assert life.state(BAD) == "live"
    # At this frontier the table has a change more than the others.
    assert (entry(life).state, life.frontier.scns()[-1]) == ("failing", middle)
    life.process()
    assert (entry(life).state, life.frontier.scns()[-1]) == ("live", ahead)


def test_of_a_log_that_ends_before_it_the_job_says_so(life: Life) -> None:
    life.target.unread = UNREAD
    life.restart()
    life.target.states[BAD.table] = replace(life.target.states[BAD.table], applied_scn=10_000)
    with pytest.raises(ChangeLogLost, match=r"The target table of public\.bad are at SCN 10000"):
        look_again(life)


def test_a_copy_is_not_taken_for_whole_by_another_dump(life: Life) -> None:
    shown = life.target.states[BAD.table]
    copying = replace(shown, copy=Copy("asked", shown.applied_scn))
    life.target.states[BAD.table] = copying
    life.target.unread = UNREAD
    life.restart()
    life.log.tell(SystemKind.DUMP_COMPLETE, BAD.table, request_id="another")
    life.process()
    look_again(life)
    assert (life.state(BAD), life.target.tries) == ("copying", 0)
    life.log.tell(SystemKind.DUMP_COMPLETE, BAD.table, request_id="asked")
    life.process()
    assert (life.state(BAD), life.target.tries) == ("live", 1)


def test_the_end_of_its_copys_dump_is_heard_of_later(life: Life) -> None:
    shown = life.target.states[BAD.table]
    copying = replace(shown, copy=Copy("asked", shown.applied_scn))
    life.target.states[BAD.table] = copying
    life.target.unread = UNREAD
    life.restart()
    life.log.tell(SystemKind.DUMP_COMPLETE, BAD.table, request_id="asked")
    life.process()
    look_again(life)
    assert (life.state(BAD), life.target.tries) == ("live", 1)


def test_a_table_that_was_moved_away_is_filled_by_a_dump(life: Life) -> None:
    life.target.unread = UNREAD
    life.restart()
    life.process()
    del life.target.states[BAD.table]
    look_again(life)
    life.log.write(BAD, "+R(0,a)")
    life.log.complete(BAD)
    life.process()
    assert life.state(BAD) == "live"


def test_its_end_at_the_source_is_heard_of_later(life: Life) -> None:
    life.target.unread = UNREAD
    life.restart()
    life.log.tell(SystemKind.DROP_TABLE, BAD.table)
    life.process()
    assert life.state(BAD) == "failing"
    look_again(life)
    assert life.state(BAD) == "left"


@pytest.mark.spark
@req("C60")
def test_a_broken_log_of_one_delta_table_at_a_start(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    good, bad = table_of(3, name="good"), table_of(3, name="bad")
    said: list[ApplyStatus] = []

    def run() -> None:
        stop = threading.Event()
        timer = threading.Timer(300.0, stop.set)
        timer.start()
        settings = ApplySettings(
            "test", log.folder, tmp_path / "lake", tmp_path / "spark", stop_at_scn=log.scn
        )
        try:
            run_apply(settings, stop, said.append, spark=spark)
        finally:
            timer.cancel()

    def rows(name: str) -> Counter[tuple[object, ...]]:
        found = DeltaTable(tmp_path / "lake" / "public" / name).snapshot().to_table().to_pylist()
        return Counter(tuple(row.values()) for row in found)

    for schema in (good, bad):
        log.write(schema, "+I(1,a,b)")
        log.complete(schema)
    run()
    newest = max((tmp_path / "lake" / "public" / "bad" / "_delta_log").glob("*.json"))
    whole = newest.read_bytes()
    newest.write_bytes(whole[:20])
    for schema in (good, bad):
        log.write(schema, "+I(2,c,d)")
    # It ends with the error of the table, behind everything that could be done.
    with pytest.raises(TargetError, match=r"bad"):
        run()
    assert rows("good") == Counter({(1, "a", "b"): 1, (2, "c", "d"): 1})
    manifest = FrontierStore(tmp_path / "lake", "test").latest()
    assert manifest is not None
    assert (manifest.scn, manifest.tables["public.bad"].state) == (log.scn, "failing")
    newest.write_bytes(whole)
    log.write(good, "+I(3,e,f)")
    run()
    assert rows("bad") == Counter({(1, "a", "b"): 1, (2, "c", "d"): 1})
