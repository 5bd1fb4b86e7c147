"""Room on disk: full disks, size limits and the budget are named errors, and nothing is lost."""

from __future__ import annotations

import errno
import os
import subprocess
import tracemalloc

import pyarrow as pa
import pytest

from headrace.changelog import (
    ChangeLogReader,
    ChangeLogSettings,
    ChangeLogWriter,
    active,
    register_job,
    unregister_job,
)
from headrace.errors import (
    ChangeLogError,
    ConfigError,
    DiskBudgetReached,
    DiskFull,
    Retry,
)
from headrace.model.block import Block
from tests.changelog.processes import run
from tests.changelog.windows import joined, scns, seen, size, synced, window
from tests.requirements import req

SMALL = ChangeLogSettings(segment_bytes=8192, retain_bytes=0)


class Disk:
    """A disk that takes some more bytes and then is full."""

    def __init__(self) -> None:
        self.room = 10**9

    def write(self, descriptor: int, data: memoryview, offset: int) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "full")
        count = os.pwrite(descriptor, data[: self.room], offset)
        self.room -= count
        return count


@pytest.mark.parametrize("room", [0, 1, 63, 500])
def test_a_full_disk_is_a_named_error_and_the_block_fits_once_there_is_room(tmp_path, room):
    disk = Disk()
    with ChangeLogWriter.open(tmp_path, SMALL, write=disk.write) as writer:
        synced(writer, window(1))
        disk.room = room
        with pytest.raises(DiskFull, match=r"Segment .* cannot be written") as caught:
            writer.append(joined([window(2), window(3, last=False)]))
        assert caught.value.retry is Retry.TIMED
        assert caught.value.next_step
        writer.sync()
        disk.room = 10**9
        writer.append(joined([window(2), window(3, last=False)]))
        synced(writer, window(3, first=2))
    assert seen(ChangeLogReader(tmp_path).blocks(0)) == [
        (1, 0, "public.t"), (1, 1, "public.t"), (2, 0, "public.t"), (2, 1, "public.t"),
        *[(3, i, "public.t") for i in range(4)],
    ]  # fmt: skip


@req("C66")
def test_a_large_transaction_goes_to_disk_piece_by_piece_and_may_fail_on_its_way(tmp_path):
    """The storage that a batch is streamed to is the change log: one piece of it is in memory at a time."""
    disk, rows, pieces = Disk(), 1_000, 100
    text = "x" * 500
    settings = ChangeLogSettings(segment_bytes=8 * 2**20, retain_bytes=0)

    def piece(number: int) -> Block:
        return window(2, rows, first=rows * number, last=number == pieces - 1, text=text)

    held: list[int] = []

    def streamed(writer: ChangeLogWriter, upto: int) -> None:
        for number in range(upto):
            writer.append(piece(number))
            held.append(pa.total_allocated_bytes() + tracemalloc.get_traced_memory()[0])

    before = pa.total_allocated_bytes()
    tracemalloc.start()
    with ChangeLogWriter.open(tmp_path, settings, write=disk.write) as writer:
        synced(writer, window(1))
        streamed(writer, pieces // 2)
        disk.room = 1_000
        with pytest.raises(DiskFull):
            writer.append(piece(pieces // 2))
        writer.sync()
        assert scns(ChangeLogReader(tmp_path).blocks(0)) == [1]
    disk.room = 10**9
    with ChangeLogWriter.open(tmp_path, settings, write=disk.write) as writer:
        assert writer.tail.complete_scn == 1
        streamed(writer, pieces)
        writer.sync()
    tracemalloc.stop()
    whole = rows * pieces * len(text) * 2
    assert max(held) - before < whole / 20
    found = ChangeLogReader(tmp_path).blocks(1)
    ords = [ord_ for block in found for _, ord_, _ in seen([block])]
    assert ords == list(range(rows * pieces))


def test_a_disk_that_fills_up_at_a_new_segment_loses_nothing(tmp_path):
    disk = Disk()
    with ChangeLogWriter.open(tmp_path, SMALL, write=disk.write) as writer:
        synced(writer, window(1, 100))
        disk.room = 50
        with pytest.raises(DiskFull, match="new segment"):
            writer.append(window(2, 100))
        assert not list(tmp_path.glob("*.tmp"))
        disk.room = 10**9
        synced(writer, window(2, 100))
    assert scns(ChangeLogReader(tmp_path).blocks(0)) == [1, 2]


@pytest.mark.parametrize("refuses", ["the name", "the end of the one before"])
def test_a_segment_that_was_not_begun_hides_nothing_that_came_after_it(
    tmp_path, monkeypatch, refuses
):
    """What is appended next may fit the segment before; a start must not take the unused one for its successor."""
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        synced(writer, window(1, 100))
        with monkeypatch.context() as broken:
            if refuses == "the name":
                broken.setattr(active, "sync_folder", _refuse)
            else:
                broken.setattr(active.ActiveSegment, "close", _refuse)
            with pytest.raises(ChangeLogError):
                writer.append(window(2, 400))
        synced(writer, window(2, 1))
        assert writer.tail.complete_scn == 2
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        assert writer.tail.complete_scn == 2
    assert scns(ChangeLogReader(tmp_path).blocks(0)) == [1, 2]


def _refuse(*_: object) -> None:
    raise OSError(errno.EIO, "broken")


FILL = """
import sys
from pathlib import Path
from headrace.changelog import ChangeLogReader, ChangeLogSettings, ChangeLogWriter
from headrace.errors import DiskFull
from tests.changelog.windows import scns, window
folder = Path(sys.argv[1])
writer = ChangeLogWriter.open(folder, ChangeLogSettings(segment_bytes=65536))
last = 0
try:
    while True:
        writer.append(window(last + 1, 50))
        writer.sync()
        last += 1
except DiskFull as error:
    assert scns(ChangeLogReader(folder).blocks(0)) == list(range(1, last + 1))
    print("full after", last, error)
"""


def can_mount() -> bool:
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not can_mount(), reason="needs the right to mount a small file system")
def test_a_real_file_system_without_room_is_a_named_error(tmp_path):
    said = run(FILL, str(tmp_path), before=f"mount -t tmpfs -o size=300k none {tmp_path}")
    assert "full after" in said
    assert "No space left on device" in said


BEGIN = """
import resource, sys
from pathlib import Path
from headrace.changelog import ChangeLogWriter
from headrace.errors import DiskFull
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    ChangeLogWriter.open(Path(sys.argv[1]))
except DiskFull as error:
    print("full", error)
"""


@pytest.mark.parametrize("limit", [0, 1, 2048, 4095])
def test_a_limit_below_the_tail_is_a_named_error(tmp_path, limit):
    """A write may take a part of the page before it is refused."""
    assert "full" in run(BEGIN, str(tmp_path), str(limit))


def test_a_file_size_limit_is_a_named_error(tmp_path):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))\n"
    big = FILL.replace("window(last + 1, 50)", "window(last + 1, 10 * 3 ** last)")
    assert "File too large" in run(limit + big, str(tmp_path))


@req("D56")
def test_at_its_budget_the_log_refuses_and_loses_nothing(tmp_path):
    settings = ChangeLogSettings(segment_bytes=8192, budget_bytes=32768, retain_bytes=0)
    register_job(tmp_path, "apply", 0)
    with ChangeLogWriter.open(tmp_path, settings) as writer:
        scn = 1
        while writer.used_bytes + size(window(scn)) <= settings.budget_bytes:
            synced(writer, window(scn))
            scn += 1
        with pytest.raises(DiskBudgetReached, match="apply has applied SCN 0") as caught:
            writer.append(window(scn))
        assert caught.value.retry is Retry.TIMED
        # Of a replicator that was renamed, no job by that name ever catches up.
        assert f"delete {tmp_path / 'jobs' / 'apply.json'}" in caught.value.next_step
        assert scns(ChangeLogReader(tmp_path).blocks(0)) == list(range(1, scn))
        for _ in range(2):
            with pytest.raises(DiskBudgetReached):
                writer.append(window(scn))
        register_job(tmp_path, "apply", scn // 2)
        synced(writer, window(scn))
        assert scns(ChangeLogReader(tmp_path).blocks(scn // 2)) == list(
            range(scn // 2 + 1, scn + 1)
        )


@req("D56")
@pytest.mark.parametrize("opens_again", [False, True])
def test_one_block_as_large_as_the_budget_goes_once_it_is_applied(tmp_path, opens_again):
    """The segment that grows is never dropped; were it not ended, capture would wait for ever."""
    settings = ChangeLogSettings(segment_bytes=8192, budget_bytes=40_000, retain_bytes=0)
    large = [window(scn, 600) for scn in (1, 2, 3)]
    assert settings.budget_bytes / 2 < size(large[0]) < settings.budget_bytes * 0.9
    register_job(tmp_path, "apply", 0)
    writer = ChangeLogWriter.open(tmp_path, settings)
    synced(writer, large[0])
    for before, block in enumerate(large[1:], start=1):
        if opens_again:
            writer = writer.reopened()
        for _ in range(2):
            with pytest.raises(DiskBudgetReached):
                writer.append(block)
        register_job(tmp_path, "apply", before)
        synced(writer, block)
        assert scns(ChangeLogReader(tmp_path).blocks(before)) == [before + 1]
        assert writer.used_bytes <= settings.budget_bytes
    with pytest.raises(DiskBudgetReached):
        writer.append(window(4, 600))
    register_job(tmp_path, "apply", 3)
    for _ in range(3):
        with pytest.raises(DiskBudgetReached):
            writer.append(window(4, 60_000))
    assert len(list(tmp_path.glob("*.seg"))) == 1, "a block beyond any budget makes no segments"
    writer.close()


def test_a_budget_that_shrank_is_said_by_retain(tmp_path):
    register_job(tmp_path, "apply", 0)
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        synced(writer, *(window(scn) for scn in range(1, 40)))
    with ChangeLogWriter.open(tmp_path, ChangeLogSettings(budget_bytes=8192)) as writer:
        with pytest.raises(DiskBudgetReached):
            writer.retain()
        unregister_job(tmp_path, "apply")
        assert writer.retain() > 0


def test_a_budget_below_one_segment_is_kept_once_all_is_applied(tmp_path):
    register_job(tmp_path, "apply", 1)
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        synced(writer, window(1), window(2, 600))
    with ChangeLogWriter.open(tmp_path, ChangeLogSettings(budget_bytes=16384)) as writer:
        with pytest.raises(DiskBudgetReached):
            writer.retain()
        register_job(tmp_path, "apply", 2)
        assert writer.retain() > 0
        assert writer.used_bytes <= 16384


@pytest.mark.parametrize("name", ["segment_bytes", "budget_bytes", "retain_bytes", "retain_s"])
def test_settings_that_cannot_be_used_are_named(tmp_path, name):
    with pytest.raises(ConfigError, match=f"changelog.{name} is -1"):
        ChangeLogWriter.open(tmp_path, ChangeLogSettings(**{name: -1}))
