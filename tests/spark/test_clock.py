"""The clock of the apply job: which stretch of the log is a batch, and when it is due."""

from __future__ import annotations

from headrace.changelog.reader import ChangeLogReader
from headrace.spark.clock import BatchClock
from headrace.spark.slices import Limits
from headrace.testing.notation import table_of
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
