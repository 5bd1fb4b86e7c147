"""One writer and many readers, each in a process of its own; kills at any moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.changelog import ChangeLogReader, ChangeLogSettings, ChangeLogWriter, merging
from tests.changelog.reader_process import follow
from tests.changelog.windows import scns, seen, synced, window
from tests.requirements import req
from tests.waiting import until

SETTINGS = ChangeLogSettings(segment_bytes=65536)
READERS = 4
LAST = 300


def test_many_reader_processes_see_the_same_stream_while_it_is_written(tmp_path):
    command = [sys.executable, "-m", "tests.changelog.reader_process", str(tmp_path), str(LAST)]
    readers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(READERS)]
    rows = 0
    with ChangeLogWriter.open(tmp_path, SETTINGS) as writer:
        for scn in range(1, LAST + 1):
            pieces = 4 if scn % 10 == 0 else 1
            for piece in range(pieces):
                synced(writer, window(scn, 5, first=5 * piece, last=piece == pieces - 1))
                rows += 5
        said = [reader.communicate(timeout=120)[0].split() for reader in readers]
    assert len(list(tmp_path.glob("*.seg"))) > 5
    count, digest = follow(tmp_path, LAST)
    assert count == rows
    assert said == [[str(count), digest]] * READERS


WRITER = """
import sys
from pathlib import Path
from headrace.changelog import ChangeLogSettings, ChangeLogWriter
from tests.changelog.windows import window
writer = ChangeLogWriter.open(Path(sys.argv[1]), ChangeLogSettings(segment_bytes=16384))
scn = writer.tail.complete_scn
while True:
    scn += 1
    pieces = 3 if scn % 4 == 0 else 1
    for piece in range(pieces):
        writer.append(window(scn, 5, first=5 * piece, last=piece == pieces - 1))
    if scn % 3 == 0:
        writer.sync()
        print(scn, flush=True)
"""


def killed(folder: Path, lines: int, environment: dict[str, str] | None = None) -> int:
    """Run a writer, kill it after it has reported some syncs, and return the last SCN it reported."""
    command = [sys.executable, "-c", WRITER, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    reported = 0
    with process.stdout as output:
        for number, line in enumerate(output, 1):
            reported = int(line)
            if number == lines:
                process.kill()
    assert process.wait(60) == -signal.SIGKILL
    return reported


def check(folder: Path, reported: int) -> None:
    """Everything reported is there, and what is there is a prefix of whole transactions."""
    with ChangeLogWriter.open(folder, SETTINGS) as writer:
        last = writer.tail.complete_scn
    assert last >= reported
    wanted = [
        (scn, place, "public.t")
        for scn in range(1, last + 1)
        for place in range(15 if scn % 4 == 0 else 5)
    ]
    assert seen(ChangeLogReader(folder).blocks(0)) == wanted


@req("D46")
def test_a_writer_killed_again_and_again_loses_nothing_that_it_reported(tmp_path):
    dice = random.Random(5)
    for _ in range(3):
        check(tmp_path, killed(tmp_path, dice.randint(1, 10)))


@pytest.mark.parametrize("name", ["log.before_sync", "log.after_sync"])
def test_a_writer_killed_around_its_sync_loses_nothing_that_it_reported(tmp_path, name):
    reported = killed(tmp_path, 0, {**os.environ, "HEADRACE_FAILPOINT": f"{name}:5"})
    assert reported == 12
    check(tmp_path, reported)


@req("D58", "N11")
def test_a_reader_that_stops_in_the_middle_holds_nobody_up(tmp_path, monkeypatch):
    monkeypatch.setattr(merging, "MERGED_ROWS", 2)
    with ChangeLogWriter.open(tmp_path, SETTINGS) as writer:
        synced(writer, *(window(scn) for scn in range(1, 50)))
        slow = ChangeLogReader(tmp_path).blocks(0)
        assert scns([next(slow)]) == [1]
        synced(writer, *(window(scn) for scn in range(50, 100)))
        assert len(scns(ChangeLogReader(tmp_path).blocks(0))) == 99
        # It reads on to where the log stood when it began.
        assert scns(slow) == list(range(2, 50))


@req("D58")
def test_readers_that_are_frozen_hold_up_neither_the_writer_nor_what_it_drops(tmp_path):
    """Three processes stop with files of the log mapped, wherever they just are: no write waits for them."""
    settings = ChangeLogSettings(segment_bytes=16384, retain_bytes=0)
    command = [sys.executable, "-m", "tests.changelog.reader_process", str(tmp_path), "100000"]
    with ChangeLogWriter.open(tmp_path, settings) as writer:
        synced(writer, *(window(scn, 5) for scn in range(1, 60)))
        readers = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(3)]
        try:
            for reader in readers:
                maps = Path(f"/proc/{reader.pid}/maps")
                until(lambda maps=maps: ".seg" in maps.read_text(), "it reads")  # type: ignore[misc]
                reader.send_signal(signal.SIGSTOP)
            slowest_s = 0.0
            for scn in range(60, 400):
                began = time.monotonic()
                synced(writer, window(scn, 5))
                writer.retain()
                slowest_s = max(slowest_s, time.monotonic() - began)
            assert slowest_s < 10.0
            # Segments that they have mapped are gone from the folder all the same.
            assert writer.tail.oldest_scn > 300
            assert scns(ChangeLogReader(tmp_path).blocks(398)) == [399]
        finally:
            for reader in readers:
                reader.kill()
                reader.wait(60)
