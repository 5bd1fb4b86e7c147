"""Writing the log: what may follow what, and when it is readable."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from headrace.changelog import (
    ChangeLogReader,
    ChangeLogSettings,
    ChangeLogWriter,
)
from headrace.errors import (
    ChangeLogError,
    ProtocolError,
    ScnNotFound,
)
from headrace.observe.failpoints import arm, disarm
from headrace.wire import encode_block
from tests.changelog.windows import SEGMENT_HEADER, coverage, joined, scns, seen, synced, window
from tests.requirements import req

SMALL = ChangeLogSettings(segment_bytes=8192, retain_bytes=0)


@req("P24")
@pytest.mark.parametrize(
    "late",
    [window(5), window(6), window(7, first=2), joined([window(8), window(9), window(9, first=2)])],
)
def test_a_block_that_does_not_follow_is_refused_and_not_written(tmp_path, late):
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        synced(writer, window(6), window(7))
        used = writer.used_bytes
        with pytest.raises(ProtocolError, match="SCN"):
            writer.append(late)
        assert writer.used_bytes == used
        synced(writer, window(8))
        assert scns(ChangeLogReader(tmp_path).blocks(0)) == [6, 7, 8]


def test_nothing_comes_between_the_pieces_of_a_transaction(tmp_path):
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        writer.append(window(6, last=False))
        with pytest.raises(ProtocolError, match="open"):
            writer.append(window(7))
        writer.append(coverage(5))
        synced(writer, window(6, first=2), window(7))
        assert [row[:2] for row in seen(ChangeLogReader(tmp_path).blocks(0))] == [
            (6, 0), (6, 1), (6, 2), (6, 3), (7, 0), (7, 1),
        ]  # fmt: skip


def test_coverage_never_goes_back(tmp_path):
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        synced(writer, window(6), coverage(20), coverage(10))
        assert writer.tail.covered_scn == 20
        synced(writer, window(21, last=False))
        assert (writer.tail.complete_scn, writer.tail.covered_scn) == (6, 20)


def test_readers_see_a_block_only_after_its_bytes_are_durable(tmp_path):
    reader = ChangeLogReader(tmp_path)
    at_sync = []
    writer = ChangeLogWriter.open(
        tmp_path, SMALL, sync=lambda _: at_sync.append(reader.tail().complete_scn)
    )
    at_sync.clear()
    synced(writer, window(1), window(2))
    synced(writer, window(3))
    assert at_sync == [0, 2]
    assert writer.sync().complete_scn == 3
    assert len(at_sync) == 2
    writer.close()


class _SlowDisk:
    """Syncs when it may; finds the file still open then.

    Attributes:
        may: whether it goes on.
        longest_s: it goes on without leave after this.
        refuses: whether it fails.
        at_sync: called before each sync.
        called: set once a sync has called it.
    """

    def __init__(self) -> None:
        self.may = threading.Event()
        self.may.set()
        self.longest_s = 60.0
        self.refuses = False
        self.at_sync: Callable[[], None] = lambda: None
        self.called = threading.Event()

    def __call__(self, descriptor: int) -> None:
        self.at_sync()
        self.called.set()
        self.may.wait(self.longest_s)
        os.fstat(descriptor)
        if self.refuses:
            raise OSError(errno.EIO, "lost")


@pytest.fixture
def slow_disk() -> Iterator[_SlowDisk]:
    """A disk that syncs when it is told to."""
    disk = _SlowDisk()
    yield disk
    disk.may.set()


def test_a_sync_beside_shows_its_blocks_and_no_later_ones(tmp_path, slow_disk):
    reader = ChangeLogReader(tmp_path)
    with ChangeLogWriter.open(tmp_path, SMALL, sync=slow_disk) as writer:
        slow_disk.may.clear()
        slow_disk.called.clear()
        writer.append(window(1))
        writer.begin_sync()
        writer.append(window(2))
        assert slow_disk.called.wait(60)
        assert reader.tail().complete_scn == 0
        shown: list[int] = []
        slow_disk.at_sync = lambda: shown.append(reader.tail().complete_scn)
        slow_disk.may.set()
        assert writer.sync().complete_scn == 2
        # The second sync, for the block that came while the first was under way, found the first one's shown.
        assert shown == [1]
        assert scns(reader.blocks(0)) == [1, 2]


def test_a_segment_is_left_only_after_the_sync_beside_has_ended(tmp_path, slow_disk):
    with ChangeLogWriter.open(tmp_path, SMALL, sync=slow_disk) as writer:
        slow_disk.may.clear()
        slow_disk.longest_s = 0.05
        writer.append(window(1))
        writer.begin_sync()
        for scn in range(2, 12):
            writer.append(window(scn))
        assert len(list(tmp_path.glob("*.seg"))) > 1
        assert writer.tail.complete_scn == 1
        assert writer.sync().complete_scn == 11


def test_a_sync_that_failed_beside_breaks_the_log_as_one_in_line_does(tmp_path, slow_disk):
    with ChangeLogWriter.open(tmp_path, SMALL, sync=slow_disk) as writer:
        synced(writer, window(1))
        slow_disk.refuses = True
        writer.append(window(2))
        writer.begin_sync()
        for call in (writer.sync, writer.begin_sync, lambda: writer.append(window(3))):
            with pytest.raises(ChangeLogError, match=r"cannot be written|failed sync"):
                call()
        assert ChangeLogReader(tmp_path).tail().complete_scn == 1


def test_a_full_segment_is_durable_before_another_one_follows_it(tmp_path):
    durable = []
    writer = ChangeLogWriter.open(
        tmp_path, SMALL, sync=lambda _: durable.append(len(list(tmp_path.glob("*.seg"))))
    )
    durable.clear()
    for scn in range(1, 12):
        writer.append(window(scn))
    assert durable == list(range(1, len(list(tmp_path.glob("*.seg")))))
    assert writer.tail.complete_scn == 0
    writer.close()


@pytest.mark.parametrize(("name", "visible"), [("log.before_sync", 0), ("log.after_sync", 0)])
def test_failpoints_stand_on_both_sides_of_the_sync(tmp_path, name, visible):
    reader = ChangeLogReader(tmp_path)
    passes = []
    arm(name, lambda: passes.append(reader.tail().complete_scn))
    try:
        with ChangeLogWriter.open(tmp_path, SMALL) as writer:
            synced(writer, window(1))
            writer.sync()
    finally:
        disarm()
    assert passes == [visible]
    assert reader.tail().complete_scn == 1


def test_after_a_failed_sync_the_log_must_be_opened_again(tmp_path):
    results = iter([None, OSError(errno.EIO, "lost")])

    def sync(descriptor: int) -> None:
        if error := next(results, None):
            raise error

    with ChangeLogWriter.open(tmp_path, SMALL, sync=sync) as writer:
        synced(writer, window(1))
        writer.append(window(2))
        with pytest.raises(ChangeLogError, match="cannot be written"):
            writer.sync()
        for again in (writer.sync, writer.retain, lambda: writer.append(window(3))):
            with pytest.raises(ChangeLogError, match="failed sync"):
                again()
        assert ChangeLogReader(tmp_path).tail().complete_scn == 1
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        assert writer.tail.complete_scn in (1, 2)
        synced(writer, window(9))


@req("D55")
def test_stored_blocks_are_taken_over_byte_by_byte(tmp_path):
    stored = [window(3), window(6, last=False), window(6, first=2), coverage(9)]
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        for block in stored:
            writer.append_stored(encode_block(block))
        assert writer.sync().covered_scn == 9
        path, length = writer.durable
        assert path is not None
        assert path.read_bytes()[SEGMENT_HEADER:length] == b"".join(map(encode_block, stored))
        with pytest.raises(ProtocolError, match="SCN"):
            writer.append_stored(encode_block(window(6)))
    assert scns(ChangeLogReader(tmp_path).blocks(0)) == [3, 6, 6]


def test_a_stored_block_that_leaves_a_transaction_open_is_split_as_any_other(tmp_path):
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        writer.append_stored(encode_block(joined([window(3), window(6, last=False)])))
        writer.sync()
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        assert writer.tail.complete_scn == 3
        synced(writer, window(6))
    assert scns(ChangeLogReader(tmp_path).blocks(0)) == [3, 6]


def test_a_log_that_begins_behind_an_scn_says_so_from_then_on(tmp_path):
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        writer.begin_at(50, 7)
        assert writer.tail.oldest_scn == writer.tail.covered_scn == 50
        with pytest.raises(ValueError, match="empty"):
            writer.begin_at(60, 8)
        with pytest.raises(ProtocolError, match="SCN"):
            writer.append(window(50))
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        synced(writer, window(51))
        assert (writer.tail.oldest_scn, writer.tail.complete_scn) == (50, 51)
    reader = ChangeLogReader(tmp_path)
    with pytest.raises(ScnNotFound):
        list(reader.blocks(49))
    assert scns(reader.blocks(50)) == [51]


def test_a_block_larger_than_an_empty_segment_gets_one_of_its_own(tmp_path):
    """Who has looked at the log has mapped the empty one as it was made, and would take what lies behind for damage."""
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        writer.begin_at(50, 7)
        reader = ChangeLogReader(tmp_path)
        assert scns(reader.blocks(50)) == []
        synced(writer, window(51, 1000), window(52))
        assert scns(reader.blocks(50)) == [51, 52]
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        assert (writer.tail.oldest_scn, writer.tail.complete_scn) == (50, 52)
    assert scns(ChangeLogReader(tmp_path).blocks(50)) == [51, 52]
