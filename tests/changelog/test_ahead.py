"""Zeros ahead of small blocks: a sync of bytes that the file holds already has no place and no size to record."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

from headrace.changelog import ChangeLogReader, ChangeLogSettings, ChangeLogWriter
from headrace.changelog.active import AHEAD_BYTES
from tests.changelog.windows import scns, size, synced, window


class Disk:
    """Notes what is written, and takes no zeros when it is told so."""

    def __init__(self) -> None:
        self.held = 0
        self.fresh: list[int] = []
        self.written = 0
        self.takes_zeros = True

    def write(self, descriptor: int, data: memoryview, offset: int) -> int:
        if not self.takes_zeros and not any(data):
            raise OSError(errno.ENOSPC, "full")
        if offset + len(data) > self.held:
            self.held = offset + len(data)
            self.fresh.append(len(data))
        self.written += len(data)
        return os.pwrite(descriptor, data, offset)


def test_small_blocks_are_written_over_bytes_that_the_file_holds(tmp_path: Path) -> None:
    disk, random_ = Disk(), random.Random(7)
    with ChangeLogWriter.open(tmp_path, write=disk.write) as writer:
        for scn in range(1, 400):
            synced(writer, window(scn, random_.randrange(1, 200)))
        used = writer.used_bytes
    assert used > 2 * AHEAD_BYTES
    # The header and the first zeros; then a block that reaches further, and zeros again.
    assert len(disk.fresh) <= 2 + 2 * (used // AHEAD_BYTES)


def test_large_blocks_are_written_once(tmp_path: Path) -> None:
    disk = Disk()
    with ChangeLogWriter.open(tmp_path, write=disk.write) as writer:
        blocks = [window(scn, 2_000, text="x" * 100) for scn in range(1, 6)]
        synced(writer, *blocks)
    assert min(map(size, blocks)) > 64 * 1024
    assert disk.written <= sum(map(size, blocks)) + AHEAD_BYTES + 4096


def test_zeros_end_where_the_segment_does(tmp_path: Path) -> None:
    disk = Disk()
    with ChangeLogWriter.open(
        tmp_path, ChangeLogSettings(segment_bytes=8192, retain_bytes=0), write=disk.write
    ) as writer:
        synced(writer, window(1))
        (segment,) = tmp_path.glob("*.seg")
        assert segment.stat().st_size == disk.held == 8192


def test_a_disk_without_room_for_zeros_takes_blocks(tmp_path: Path) -> None:
    disk = Disk()
    disk.takes_zeros = False
    with ChangeLogWriter.open(tmp_path, write=disk.write) as writer:
        for scn in range(1, 20):
            synced(writer, window(scn))
    assert scns(ChangeLogReader(tmp_path).blocks(0)) == list(range(1, 20))
