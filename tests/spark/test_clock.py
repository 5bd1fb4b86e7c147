"""The clock of the apply job: which stretch of the log is a batch, and when it is due."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.changelog import ChangeLogSettings, ChangeLogWriter
from headrace.changelog.reader import ChangeLogReader
from headrace.changelog.refs import BlockRef
from headrace.errors import ChangeLogLost
from headrace.spark.clock import BatchClock
from headrace.spark.slices import Filling, Limits
from headrace.testing.notation import table_of
from tests.changelog.windows import joined, window
from tests.requirements import req
from tests.spark.log import Log

TABLE = table_of(2)
MUCH = 1 << 40


class Time:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Noting(ChangeLogReader):
    """Notes the blocks that somebody takes, by SCN."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.taken: list[int] = []

    def refs(self, after_scn: int, upto_scn: int | None = None) -> Iterator[BlockRef]:
        for ref in super().refs(after_scn, upto_scn):
            self.taken.append(ref.last_scn)
            yield ref


def clock_of(
    log: Log, *, rows: int = MUCH, trigger_s: float = 0.0, first_end: int = 0
) -> tuple[BatchClock, Time]:
    time = Time()
    reader = ChangeLogReader(log.folder)
    return BatchClock(reader, Limits(rows, MUCH), trigger_s, first_end, time), time


def ends(clock: BatchClock, begin: int = 0) -> list[int]:
    """Return the ends of the batches that are due, one behind the other."""
    found: list[int] = []
    while (end := clock.due(found[-1] if found else begin)) is not None:
        found.append(end)
    return found


def test_batches_end_between_transactions_within_their_limit_and_where_a_restart_has_to(
    log: Log,
) -> None:
    log.write(TABLE, "+I(1,a) +I(2,a) | +I(3,a) | +I(4,a) +I(5,a) +I(6,a) | -D(1)")
    clock, _ = clock_of(log, rows=3, first_end=10)
    # The first ends where a restart has to; the second is full; a transaction that is too large is a batch of its own.
    assert ends(clock) == [10, 20, 30, 40]
    log.write(TABLE, "+I(7,a) | -D(7)")
    assert ends(clock, 40) == [60]


def test_who_is_behind_waits_for_nothing_and_who_keeps_up_for_its_time(log: Log) -> None:
    log.write(TABLE, "+I(1,a) | +I(2,a) | +I(3,a)")
    clock, time = clock_of(log, rows=1, trigger_s=3_600.0, first_end=20)
    assert ends(clock) == [10, 20]
    time.now += 3_599.0
    assert ends(clock, 20) == []
    time.now += 1.0
    assert ends(clock, 20) == [30]


def test_what_waits_for_its_time_is_looked_at_once(log: Log) -> None:
    """Else a busy source and a long trigger take a processor: the clock is asked twenty times a second."""
    log.write(TABLE, "+I(0,a)")
    reader, time = Noting(log.folder), Time()
    clock = BatchClock(reader, Limits(100, MUCH), 3_600.0, now=time)
    assert clock.due(0) == 10
    for key in range(1, 101):
        log.write(TABLE, f"+I({key},a)")
        assert [clock.due(10) for _ in range(3)] == [None] * 3
    # All that it holds, whatever was looked at before, is due as soon as there is more of it than the limit.
    log.write(TABLE, "+I(101,a)")
    assert clock.due(10) == log.scn - 10
    assert reader.taken == list(range(10, log.scn + 10, 10))


def test_a_block_that_passes_where_a_restart_has_to_end_counts_once(log: Log) -> None:
    log.writer.append(window(1))
    log.writer.append(joined(window(scn) for scn in (2, 3, 4)))
    log.writer.sync()
    reader, batch = ChangeLogReader(log.folder), Filling(0)
    assert batch.end(reader, 3, Limits(8, MUCH)) == 3
    assert batch.end(reader, 4, Limits(8, MUCH)) == 4


def test_what_was_seen_of_a_log_says_nothing_of_an_older_copy_of_it(
    log: Log, tmp_path: Path
) -> None:
    log.write(TABLE, "+I(0,a)")
    copy = tmp_path / "copy"
    shutil.copytree(log.folder, copy)
    older = Log(copy)
    older.scn = log.scn
    older.write(TABLE, "+I(1,b)")
    older.writer.close()
    clock, time = clock_of(log, rows=3, trigger_s=3_600.0)
    assert clock.due(0) == 10
    log.write(TABLE, "+I(1,a) | +I(2,a) | +I(3,a)")
    assert clock.due(10) is None
    log.writer.close()
    shutil.rmtree(log.folder)
    copy.rename(log.folder)
    assert clock.due(10) is None
    time.now += 3_600.0
    assert clock.due(10) == 20


@pytest.mark.parametrize("history", ["", "+I(1,b) | +I(2,b)"], ids=["gone", "shorter"])
def test_a_log_that_ends_before_the_tables_do_is_lost(log: Log, history: str) -> None:
    """Else the job would wait for it to pass them, and go on without the rows in between."""
    log.write(TABLE, "+I(1,a) | +I(2,a) | +I(3,a)")
    clock, _ = clock_of(log)
    behind_a_restart, _ = clock_of(log, first_end=30)
    assert ends(clock) == [30]
    log.writer.close()
    shutil.rmtree(log.folder)
    other = Log(log.folder) if history else None
    newest = other.write(TABLE, history) if other else 0
    for asked, begin in ((clock, 30), (behind_a_restart, 10)):
        with pytest.raises(ChangeLogLost, match=f"at SCN 30, .* ends at {newest}: RESYNC") as lost:
            asked.due(begin)
        assert "copy them again" in lost.value.next_step
    if other:
        other.writer.close()


def test_a_log_that_is_empty_or_trimmed_or_written_by_another_is_not_lost(log: Log) -> None:
    clock, _ = clock_of(log)
    assert clock.due(0) is None
    log.write(TABLE, "+I(1,a) | +I(2,a)")
    assert ends(clock) == [20]
    log.writer.close()
    log.writer = ChangeLogWriter.open(log.folder, ChangeLogSettings(retain_bytes=0, retain_s=0))
    assert clock.due(20) is None
    log.write(TABLE, "+I(3,a)")
    assert log.writer.retain() == 1
    assert clock.due(20) == 30
    assert clock.due(30) is None


@req("C87")
def test_a_batch_is_due_by_the_clock_and_no_traffic_is_needed(log: Log) -> None:
    """The flush of the design is the trigger: what waits goes when its time has come; a quiet log gives none."""
    clock, time = clock_of(log, trigger_s=60.0)
    log.write(TABLE, "+I(1,a)")
    assert clock.due(0) == 10
    found: list[tuple[int, int]] = []
    for second in range(1, 181):
        time.now = 1_000.0 + second
        if second == 5:
            log.write(TABLE, "+I(2,a)")
        if second in (61, 62, 63):
            # Traffic neither hastens the next flush nor puts it off.
            log.write(TABLE, "+I(3,a)")
        end = clock.due(found[-1][1] if found else 10)
        if end is not None:
            found.append((second, end))
    assert found == [(60, 20), (120, 50)]
