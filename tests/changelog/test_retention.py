"""What retention drops, and what it never does."""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.changelog import (
    ChangeLogReader,
    ChangeLogSettings,
    ChangeLogWriter,
    register_job,
    unregister_job,
)
from headrace.changelog.chain import follow
from headrace.changelog.retention import Sealed, droppable
from headrace.errors import ScnNotFound, StateError
from tests.changelog.processes import run
from tests.changelog.windows import scns, synced, window
from tests.requirements import req

SMALL = ChangeLogSettings(segment_bytes=8192, retain_bytes=0)


def filled(folder, settings=SMALL, last=60, **hooks) -> ChangeLogWriter:
    writer = ChangeLogWriter.open(folder, settings, **hooks)
    for scn in range(1, last + 1):
        synced(writer, window(scn))
    return writer


@pytest.mark.parametrize("applied", [0, 1, 17, 30, 59, 60])
def test_what_a_job_has_not_applied_is_never_dropped(tmp_path, applied):
    register_job(tmp_path, "fast", 60)
    register_job(tmp_path, "slow", applied)
    with filled(tmp_path) as writer:
        writer.retain()
        assert writer.tail.oldest_scn <= applied
        assert scns(ChangeLogReader(tmp_path).blocks(applied)) == list(range(applied + 1, 61))
        files = {path.name for path in tmp_path.glob("*.seg")}
        assert files == {
            ref.segment for ref in ChangeLogReader(tmp_path).refs(writer.tail.oldest_scn)
        }


@req("D45")
def test_old_windows_vanish_and_the_oldest_position_moves(tmp_path):
    with filled(tmp_path) as writer:
        before = len(list(tmp_path.glob("*.seg")))
        count = writer.retain()
        assert count == before - 1 == before - len(list(tmp_path.glob("*.seg")))
        assert writer.tail.oldest_scn > 40
        assert writer.retain() == 0
        with pytest.raises(ScnNotFound):
            ChangeLogReader(tmp_path).refs(writer.tail.oldest_scn - 1)


def test_the_newest_transaction_up_to_a_position_is_found_in_any_segment(tmp_path):
    """Also at the end of a segment, and where nothing is held any more."""
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        for scn in range(10, 610, 10):
            synced(writer, window(scn))
        reader = ChangeLogReader(tmp_path)

        def newest(scn: int) -> int:
            entry = reader.newest_at(scn)
            assert entry is not None
            return int(entry["scn"])

        assert len(list(tmp_path.glob("*.seg"))) > 5
        for scn in range(10, 601):
            assert newest(scn) == scn // 10 * 10
        assert reader.newest_at(9) is None
        writer.retain()
        assert reader.newest_at(writer.tail.oldest_scn) is None
        assert newest(600) == 600
        with pytest.raises(ScnNotFound):
            reader.newest_at(writer.tail.oldest_scn - 1)


def test_the_oldest_position_survives_a_restart_and_a_lost_tail(tmp_path):
    with filled(tmp_path) as writer:
        writer.retain()
        oldest = writer.tail.oldest_scn
    (tmp_path / "tail").unlink()
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        assert writer.tail.oldest_scn == oldest
        assert writer.tail.complete_scn == 60


@req("D45")
def test_bytes_are_retained_for_late_readers(tmp_path):
    with filled(tmp_path, ChangeLogSettings(segment_bytes=8192, retain_bytes=40_000)) as writer:
        assert writer.retain() > 0
        assert 40_000 <= writer.used_bytes < 40_000 + 8192


@req("D45")
def test_windows_are_retained_for_a_time(tmp_path):
    now = [1000.0]
    settings = ChangeLogSettings(segment_bytes=8192, retain_bytes=0, retain_s=60)
    with filled(tmp_path, settings, clock=lambda: now[0]) as writer:
        now[0] += 59
        assert writer.retain() == 0
        now[0] += 1
        assert writer.retain() > 0


CLOCK_IS_SET = """
import sys, time
from pathlib import Path
real, shift = time.time, 0.0
time.time = lambda: real() + shift
time.time_ns = lambda: int(time.time() * 1e9)
from headrace.changelog import ChangeLogSettings, ChangeLogWriter
from tests.changelog.windows import synced, window
folder, reopens = Path(sys.argv[1]), sys.argv[3] == "reopens"
settings = ChangeLogSettings(segment_bytes=8192, retain_bytes=0, retain_s=3600)
writer = ChangeLogWriter.open(folder, settings)
for scn in range(1, 61):
    synced(writer, window(scn))
shift = float(sys.argv[2])
if reopens:
    writer = writer.reopened()
print(writer.retain(), writer.tail.oldest_scn)
"""


@pytest.mark.parametrize("seconds", [86_400, -86_400])
@pytest.mark.parametrize("reopens", ["reopens", "goes-on"])
def test_a_clock_that_is_set_drops_nothing_that_is_kept_for_a_time(tmp_path, seconds, reopens):
    assert run(CLOCK_IS_SET, str(tmp_path), str(seconds), reopens) == "0 0\n"
    assert scns(ChangeLogReader(tmp_path).blocks(0)) == list(range(1, 61))


@pytest.mark.parametrize(("old_s", "dropped"), [(3590, False), (3610, True), (-86_400, False)])
def test_what_another_process_left_is_as_old_as_its_file(tmp_path, old_s, dropped):
    filled(tmp_path).close()
    for path in tmp_path.glob("*.seg"):
        os.utime(path, (time.time() - old_s,) * 2)
    settings = ChangeLogSettings(segment_bytes=8192, retain_bytes=0, retain_s=3600)
    with ChangeLogWriter.open(tmp_path, settings) as writer:
        synced(writer, window(61))
        assert bool(writer.retain()) is dropped


def test_a_file_from_the_future_is_kept_no_longer_than_a_new_one(tmp_path):
    now = [0.0]
    filled(tmp_path).close()
    for path in tmp_path.glob("*.seg"):
        os.utime(path, (time.time() + 10 * 365 * 86_400,) * 2)
    settings = ChangeLogSettings(segment_bytes=8192, retain_bytes=0, retain_s=3600)
    with ChangeLogWriter.open(tmp_path, settings, clock=lambda: now[0]) as writer:
        synced(writer, window(61))
        assert writer.retain() == 0
        now[0] += 3601
        assert writer.retain() > 0


@req("D56")
def test_the_budget_is_stronger_than_what_is_kept_for_late_readers(tmp_path):
    settings = ChangeLogSettings(segment_bytes=8192, budget_bytes=32768, retain_s=1e9)
    with filled(tmp_path, settings) as writer:
        assert writer.used_bytes <= 32768
        assert writer.tail.complete_scn == 60
        assert writer.tail.oldest_scn > 0


def test_a_budget_below_a_segment_still_lets_old_blocks_go(tmp_path):
    with filled(tmp_path, ChangeLogSettings(budget_bytes=32768)) as writer:
        assert writer.used_bytes <= 32768
        assert writer.tail.complete_scn == 60


def test_pieces_of_an_open_transaction_stay_whatever_the_jobs_say(tmp_path):
    register_job(tmp_path, "eager", 10**9)
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        synced(writer, window(1))
        for piece in range(20):
            synced(writer, window(2, 20, first=20 * piece, last=False))
        writer.retain()
        synced(writer, window(2, 20, first=400))
        blocks = list(ChangeLogReader(tmp_path).blocks(1))
        assert sum(block.rows for block in blocks) == 21 * 20


def test_segments_that_are_not_published_stay(tmp_path):
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        for scn in range(1, 60):
            writer.append(window(scn))
        assert writer.retain() == 0
        writer.sync()
        assert scns(ChangeLogReader(tmp_path).blocks(0)) == list(range(1, 60))


def test_a_reader_that_retention_overtakes_again_and_again_is_told_of_no_loss(
    tmp_path, monkeypatch
):
    """It may be held up for longer than the whole log lasts, more than once."""
    left = [4]
    with filled(tmp_path) as writer:

        def held_up(*args):
            if left[0]:
                left[0] -= 1
                last = writer.tail.complete_scn
                synced(writer, *(window(scn) for scn in range(last + 1, last + 61)))
                writer.retain()
            return follow(*args)

        monkeypatch.setattr("headrace.changelog.opened.follow", held_up)
        reader = ChangeLogReader(tmp_path)
        with pytest.raises(ScnNotFound):
            reader.refs(1)
        assert left == [0]
        assert scns(reader.blocks(writer.tail.oldest_scn))[-1] == writer.tail.complete_scn


def test_a_job_file_that_cannot_be_read_stops_retention(tmp_path):
    register_job(tmp_path, "apply", 5)
    (tmp_path / "jobs" / "apply.json").write_text("{")
    with filled(tmp_path) as writer:
        with pytest.raises(StateError, match=r"apply\.json"):
            writer.retain()
        assert writer.tail.oldest_scn == 0
        unregister_job(tmp_path, "apply")
        assert writer.retain() > 0


segments = st.lists(
    st.tuples(st.integers(1, 100), st.integers(0, 5), st.floats(0, 100)), max_size=8
)


@req("D45")
@given(segments, st.integers(0, 30), st.integers(1, 500), st.integers(0, 300), st.floats(0, 100))
def test_the_decision_never_passes_a_job_and_never_drops_without_a_reason(
    parts, applied, budget, retain_bytes, retain_s
):
    sealed, scn = [], 0
    for length, step, age in parts:
        scn += step
        sealed.append(Sealed(length, scn, age))
    used = sum(segment.length for segment in sealed) + 10
    settings = ChangeLogSettings(1, budget, retain_bytes, retain_s)
    count = droppable(sealed, used, applied, settings)
    assert all(segment.last_scn <= applied for segment in sealed[:count])
    for place in range(count):
        left = used - sum(segment.length for segment in sealed[: place + 1])
        by_size_and_age = left >= retain_bytes and sealed[place].age_s >= retain_s
        assert by_size_and_age or left + sealed[place].length > budget
    rest = used - sum(segment.length for segment in sealed[:count])
    if count < len(sealed) and rest > budget:
        assert sealed[count].last_scn > applied
