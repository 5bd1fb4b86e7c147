"""The pace of dumps: a pure decision, and a simulated source that it is applied to."""

from __future__ import annotations

import pytest

from headrace.model.schema import TableId
from headrace.state.pace import ADAPTIVE, Pace
from headrace.watermark.pace import (
    CHUNK_BYTES,
    EMIT_S,
    FIRST_ROWS,
    FULL_EMIT_S,
    LEAST_BYTES,
    LEAST_ROWS,
    MOST_ROWS,
    QUIET_EMIT_S,
    QUIET_GROWTH,
    STRETCH,
    Chunked,
    DumpPace,
    Pacer,
    next_rows,
    ready_at,
)
from headrace.watermark.settings import DumpSettings
from tests.requirements import req

AIM = DumpPace(chunk_s=0.25)
BIG = TableId("public", "big")
ROW_BYTES = 1_024


def chunk(
    asked: int,
    rows: int | None = None,
    *,
    select_s: float = 0.1,
    wait_s: float = 0.0,
    emit_s: float = 0.0,
    nbytes: int = 0,
    begun: float = 0.0,
    quiet: bool = False,
) -> Chunked:
    read = begun + select_s
    held = asked if rows is None else rows
    emitted = read + wait_s + emit_s
    return Chunked(asked, held, nbytes, begun, read, read + wait_s, emitted, quiet)


class Source:
    """A table that is read at a steady rate, with a log that delivers marks after a while."""

    def __init__(
        self,
        pace: DumpPace,
        rows_per_s: float,
        *,
        mark_s: float = 0.0,
        emit_per_s: float = 1e9,
        fixed_s: float = 0.0,
        row_bytes: int = 64,
        quiet: bool = False,
    ) -> None:
        self.quiet = quiet
        self.fixed_s = fixed_s
        self.row_bytes = row_bytes
        self.pacer = Pacer(pace)
        self.rows_per_s = rows_per_s
        self.mark_s = mark_s
        self.emit_per_s = emit_per_s
        self.now = 0.0
        self.busy = 0.0
        self.rows = 0

    def read(self, chunks: int) -> None:
        for _ in range(chunks):
            self.now = max(self.now, self.pacer.ready_at)
            rows = self.pacer.rows
            took = chunk(
                rows,
                select_s=rows / self.rows_per_s,
                wait_s=self.mark_s,
                emit_s=self.fixed_s + rows / self.emit_per_s,
                nbytes=rows * self.row_bytes,
                begun=self.now,
                quiet=self.quiet,
            )
            self.pacer.took(took, BIG)
            self.busy += took.read - took.begun
            self.rows += rows
            self.now = took.emitted


def test_a_given_size_never_changes() -> None:
    source = Source(DumpPace(chunk_rows=77), 10.0)
    source.read(20)
    assert source.rows == 20 * 77


@pytest.mark.parametrize("rows_per_s", [2_000, 40_000, 200_000])
def test_a_chunk_comes_to_take_what_it_aims_at(rows_per_s: float) -> None:
    source = Source(AIM, rows_per_s)
    source.read(12)
    assert source.pacer.rows / rows_per_s == pytest.approx(0.25, rel=0.05)


def test_one_slow_select_halves_the_next_chunk_and_no_more() -> None:
    assert next_rows(AIM, 10_000, chunk(10_000, select_s=60.0)) == 5_000
    assert next_rows(AIM, 10_000, chunk(10_000, select_s=0.001)) == 20_000


def test_chunks_beside_a_quiet_log_grow_faster_but_not_past_what_they_aim_at() -> None:
    assert next_rows(AIM, 1_000, chunk(1_000, select_s=0.001, quiet=True)) == 1_000 * QUIET_GROWTH
    assert next_rows(AIM, 1_000, chunk(1_000, select_s=0.1, quiet=True)) == 2_500
    assert next_rows(AIM, 10_000, chunk(10_000, select_s=60.0, quiet=True)) == 5_000


def test_the_end_of_a_table_says_nothing_of_the_size() -> None:
    assert next_rows(AIM, 10_000, chunk(10_000, 3, select_s=60.0)) == 10_000
    assert next_rows(AIM, 10_000, chunk(10_000, 0)) == 10_000


def test_sizes_have_bounds() -> None:
    assert next_rows(AIM, LEAST_ROWS, chunk(LEAST_ROWS, select_s=60.0)) == LEAST_ROWS
    assert next_rows(AIM, MOST_ROWS, chunk(MOST_ROWS, select_s=1e-6)) == MOST_ROWS
    # A clock too coarse to see the select.
    assert next_rows(AIM, 1_000, chunk(1_000, select_s=0.0)) == 2_000


def test_wide_rows_are_bounded_by_their_bytes() -> None:
    wide = chunk(10_000, select_s=0.01, nbytes=2 * CHUNK_BYTES)
    assert next_rows(AIM, 10_000, wide) == 5_000


@req("N09", "P48")
@pytest.mark.parametrize(
    ("load", "held_s", "emit_per_s"), [(1.0, FULL_EMIT_S, 1e5), (0.5, EMIT_S, 1e6)]
)
def test_a_window_that_holds_the_log_up_makes_chunks_smaller(
    load: float, held_s: float, emit_per_s: float
) -> None:
    pace = DumpPace(chunk_s=AIM.chunk_s, load=load)
    source = Source(pace, 1e6, emit_per_s=emit_per_s, row_bytes=ROW_BYTES)
    source.read(12)
    assert source.pacer.rows == pytest.approx(held_s * emit_per_s, rel=0.05)


@req("N09", "P48")
def test_a_window_of_which_all_is_fixed_cost_does_not_shrink_without_end() -> None:
    source = Source(DumpPace(load=0.25), 1e6, fixed_s=4 * EMIT_S, row_bytes=ROW_BYTES)
    source.read(30)
    assert source.pacer.rows == pytest.approx(LEAST_BYTES / ROW_BYTES, rel=0.05)


def test_a_log_that_brings_nothing_is_held_up_for_longer() -> None:
    source = Source(AIM, 1e6, emit_per_s=100_000, row_bytes=ROW_BYTES, quiet=True)
    source.read(12)
    assert source.pacer.rows == pytest.approx(QUIET_EMIT_S * 100_000, rel=0.05)
    source.quiet = False
    source.read(4)
    assert source.pacer.rows == pytest.approx(FULL_EMIT_S * 100_000, rel=0.05)


def test_a_log_that_is_behind_makes_chunks_longer_so_that_dumps_go_on() -> None:
    near, far = Source(AIM, 40_000, mark_s=0.01), Source(AIM, 40_000, mark_s=30.0)
    near.read(12)
    far.read(12)
    assert near.pacer.rows / 40_000 == pytest.approx(0.25, rel=0.05)
    assert far.pacer.rows / 40_000 == pytest.approx(STRETCH * 0.25, rel=0.05)


@req("P58")
@pytest.mark.parametrize("load", [0.05, 0.25, 0.5, 1.0])
def test_selects_stay_within_their_share_of_the_time(load: float) -> None:
    source = Source(DumpPace(load=load), 50_000)
    source.read(40)
    # After the last chunk comes the rest that it costs.
    assert source.busy / max(source.now, source.pacer.ready_at) == pytest.approx(load, rel=0.01)


def test_time_that_a_mark_takes_counts_as_rest() -> None:
    last = chunk(100, select_s=0.1, wait_s=0.25)
    assert ready_at(DumpPace(load=0.25), last) == pytest.approx(0.1 + 0.3)
    assert ready_at(DumpPace(load=0.5), last) == pytest.approx(last.received)


def test_the_next_chunk_does_not_wait_until_the_last_is_written() -> None:
    last = chunk(100, select_s=0.1, wait_s=0.2, emit_s=0.3)
    assert ready_at(DumpPace(), last) == pytest.approx(0.3)


def test_what_writing_will_take_is_told_by_what_it_took() -> None:
    pacer = Pacer(AIM)
    assert pacer.emit_s(1_000) == 0
    pacer.emitted(500, 0.25)
    pacer.emitted(0, 9.0)
    assert pacer.emit_s(1_000) == pytest.approx(0.5)


@req("P57", "N04")
def test_a_delay_begins_when_the_rows_are_out() -> None:
    last = chunk(100, select_s=0.1, wait_s=0.2, emit_s=0.3)
    assert ready_at(DumpPace(delay_s=2.0), last) == pytest.approx(2.6)


@req("P57")
@pytest.mark.parametrize("limit", [50.0, 3_000.0])
def test_rows_per_second_are_kept_and_come_evenly(limit: float) -> None:
    source = Source(DumpPace(rows_per_s=limit), 500_000)
    source.read(5)
    begun, rows = source.now, source.rows
    source.read(20)
    assert (source.rows - rows) / (source.now - begun) <= limit * 1.06
    assert source.pacer.rows <= max(LEAST_ROWS, limit)


def test_a_new_pace_is_felt_in_the_rest_that_is_under_way() -> None:
    pacer = Pacer(DumpPace(chunk_rows=10, delay_s=3_600.0))
    pacer.took(chunk(10), BIG)
    assert pacer.ready_at > 3_600
    pacer.pace = DumpPace(chunk_rows=10)
    assert pacer.ready_at < 1


def test_reads_by_key_leave_the_size_alone() -> None:
    pacer = Pacer(AIM)
    pacer.took(chunk(1_000, select_s=60.0), None)
    assert pacer.rows == FIRST_ROWS
    assert pacer.ready_at >= 60


@req("N05", "N06")
def test_what_people_set_wins_over_the_file_setting_by_setting() -> None:
    file = DumpSettings(chunk_rows=500, delay_s=1.0, load=0.5)
    assert file.pace(Pace()) == DumpPace(500, 0.25, 0.5, 1.0, 0.0)
    assert file.pace(Pace(chunk_rows=9, rows_per_s=7.0)) == DumpPace(9, 0.25, 0.5, 1.0, 7.0)
    assert file.pace(Pace(chunk_rows=ADAPTIVE)).chunk_rows is None
    assert file.pace(Pace(delay_s=0.0, load=1.0)) == DumpPace(500, 0.25, 1.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("chunk_rows", 0),
        ("chunk_rows", 1_000_001),
        ("chunk_s", 0.0),
        ("load", 0.0),
        ("load", 1.1),
        ("delay_s", -1.0),
        ("rows_per_s", -1.0),
        ("memory_bytes", 1),
    ],
)
def test_settings_that_cannot_work_are_named(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        DumpSettings(**{field: value}).validate()  # type: ignore[arg-type]
