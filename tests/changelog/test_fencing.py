"""Who may write the log: one process, the newest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.changelog import (
    ChangeLogReader,
    ChangeLogSettings,
    ChangeLogWriter,
)
from headrace.errors import (
    ChangeLogLost,
    LeaseLost,
)
from headrace.observe.failpoints import arm, disarm
from tests.changelog.processes import run
from tests.changelog.windows import scns, seen, synced, window
from tests.requirements import req

SMALL = ChangeLogSettings(segment_bytes=8192, retain_bytes=0)


def succeeded(folder: Path) -> ChangeLogWriter:
    """Open a second writer as if the lock had been lost, as it is on some network file systems."""
    (folder / "writer.lock").unlink()
    return ChangeLogWriter.open(folder, SMALL)


@req("A-19")
def test_a_second_writer_is_refused_and_harms_nobody(tmp_path):
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        with pytest.raises(LeaseLost, match="Another process writes"):
            ChangeLogWriter.open(tmp_path, SMALL)
        assert "LeaseLost" in run(SECOND, str(tmp_path))
        synced(writer, window(1))
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        assert writer.generation == 2


@req("A-19")
def test_a_log_that_is_opened_anew_keeps_its_lock_throughout(tmp_path):
    writer = ChangeLogWriter.open(tmp_path, SMALL)
    synced(writer, window(1))
    # What a child process holds between its fork and its exec.
    inherited = os.dup(writer._lock)
    writer = writer.reopened()
    os.close(inherited)
    with writer:
        with pytest.raises(LeaseLost):
            ChangeLogWriter.open(tmp_path, SMALL)
        synced(writer, window(2))
    assert scns(ChangeLogReader(tmp_path).blocks(0)) == [1, 2]


@req("A-19")
def test_a_log_that_somebody_took_over_is_not_taken_back(tmp_path):
    writer = ChangeLogWriter.open(tmp_path, SMALL)
    synced(writer, window(1))
    with succeeded(tmp_path) as heir:
        with pytest.raises(LeaseLost):
            writer.reopened()
        synced(heir, window(2))


SECOND = """
import sys
from pathlib import Path
from headrace.changelog import ChangeLogWriter
from headrace.errors import LeaseLost
try:
    ChangeLogWriter.open(Path(sys.argv[1]))
except LeaseLost as error:
    print("LeaseLost", error)
"""


def test_the_generation_rises_with_every_opening(tmp_path):
    for generation in range(1, 5):
        with ChangeLogWriter.open(tmp_path, SMALL) as writer:
            assert writer.generation == generation
            if generation % 2:
                synced(writer, window(generation))
                assert f".{generation:010d}.seg" in str(writer.durable[0])


@req("A-19")
def test_a_writer_that_was_succeeded_is_refused_at_every_step(tmp_path):
    stale = ChangeLogWriter.open(tmp_path, SMALL)
    synced(stale, window(1))
    stale.append(window(2))
    with succeeded(tmp_path) as writer:
        for step in (stale.sync, stale.retain, lambda: stale.append(window(3))):
            with pytest.raises(LeaseLost, match="generation 1"):
                step()
        # What was written before the take-over counts, although its writer was never told.
        assert writer.tail.complete_scn == 2
        synced(writer, window(3, text="new"))
        stale.close()
        assert scns(ChangeLogReader(tmp_path).blocks(0)) == [1, 2, 3]


@req("A-19")
def test_a_writer_succeeded_in_the_middle_of_its_sync_is_not_told_that_it_is_durable(tmp_path):
    stale = ChangeLogWriter.open(tmp_path, SMALL)
    synced(stale, window(1))
    writers = []
    arm("log.before_sync", lambda: writers.append(succeeded(tmp_path)))
    try:
        stale.append(window(2))
        with pytest.raises(LeaseLost):
            stale.sync()
    finally:
        disarm()
    synced(writers[0], window(3))
    assert ChangeLogReader(tmp_path).tail() == writers[0].tail
    writers[0].close()


@req("A-19")
def test_bytes_that_a_stale_writer_writes_late_are_no_part_of_the_log(tmp_path, monkeypatch):
    stale = ChangeLogWriter.open(tmp_path, SMALL)
    synced(stale, window(1))
    writer = succeeded(tmp_path)
    synced(writer, window(2, text="new"))
    # It was past its check when it was frozen, and now its write goes through.
    monkeypatch.setattr(stale._tail, "check", lambda: None)
    synced(stale, window(2, 9, text="stale"), window(3, 200, text="stale"))
    stale.close()
    synced(writer, window(4))
    writer.close()
    assert [row[:2] for row in seen(ChangeLogReader(tmp_path).blocks(0))] == [
        (1, 0), (1, 1), (2, 0), (2, 1), (4, 0), (4, 1),
    ]  # fmt: skip
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        assert writer.tail.complete_scn == 4


def test_a_folder_removed_under_the_writer_is_a_lost_log(tmp_path):
    folder = tmp_path / "log"
    with ChangeLogWriter.open(folder, SMALL) as writer:
        synced(writer, window(1))
        folder.rename(tmp_path / "elsewhere")
        for step in (writer.sync, lambda: writer.append(window(2))):
            with pytest.raises(ChangeLogLost, match="removed"):
                step()
