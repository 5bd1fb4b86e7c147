"""A log that is gone is said before anybody goes on without it."""

from __future__ import annotations

import shutil

import pytest

from headrace.changelog import ChangeLogSettings, ChangeLogWriter, require
from headrace.errors import ChangeLogLost
from tests.changelog.windows import coverage, synced, window

SMALL = ChangeLogSettings(segment_bytes=8192, retain_bytes=0)


def test_a_position_inside_the_log_is_fine(tmp_path):
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        synced(writer, window(5), coverage(9))
        for scn in (0, 3, 5, 9):
            require(tmp_path, scn)


def test_a_deleted_log_is_lost_and_nothing_points_into_a_new_one(tmp_path):
    folder = tmp_path / "log"
    with ChangeLogWriter.open(folder, SMALL) as writer:
        synced(writer, window(5))
    shutil.rmtree(folder)
    require(folder, 0)
    with pytest.raises(ChangeLogLost, match="SCN 5") as caught:
        require(folder, 5)
    assert "dump all tables again" in caught.value.next_step
    with ChangeLogWriter.open(folder, SMALL) as writer:
        with pytest.raises(ChangeLogLost):
            require(folder, 5)
        synced(writer, window(1))
        with pytest.raises(ChangeLogLost):
            require(folder, 5)


def test_a_log_older_than_the_state_is_lost(tmp_path):
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        synced(writer, window(5))
    with pytest.raises(ChangeLogLost):
        require(tmp_path, 6)


def test_a_log_that_dropped_what_the_state_needs_is_lost(tmp_path):
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        for scn in range(1, 40):
            synced(writer, window(scn))
        writer.retain()
        require(tmp_path, writer.tail.oldest_scn)
        with pytest.raises(ChangeLogLost):
            require(tmp_path, writer.tail.oldest_scn - 1)
