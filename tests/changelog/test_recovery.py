"""The log after a crash: a prefix of whole transactions that contains everything that was synced."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.changelog import ChangeLogReader, ChangeLogSettings, ChangeLogWriter
from headrace.errors import ChangeLogLost, CorruptSegment
from headrace.model.block import Block
from tests.changelog.windows import SEGMENT_HEADER, coverage, joined, scns, seen, window
from tests.requirements import req

SMALL = ChangeLogSettings(segment_bytes=8192)


@dataclass
class Crash:
    """A log that was being written: what was appended, what was synced, and the files."""

    folder: Path
    appended: list[tuple[int, int, str]] = field(default_factory=list)
    synced_scn: int = 0
    path: Path | None = None
    durable_bytes: int = 0

    @property
    def durable(self) -> tuple[Path, int]:
        """The segment with the durable end, and where that lies."""
        assert self.path is not None
        return self.path, self.durable_bytes

    def write(self, steps: list[Block | None]) -> None:
        """Append blocks, sync at each None, and leave the writer as a dead process would."""
        writer = ChangeLogWriter.open(self.folder, SMALL)
        for step in steps:
            if step is None:
                self.synced_scn = writer.sync().complete_scn
                self.path, self.durable_bytes = writer.durable
            else:
                writer.append(step)
                self.appended += seen([step])
        writer.close()

    def check(self, folder: Path) -> int:
        """Open the log that the crash left and compare; return the last SCN that survived."""
        with ChangeLogWriter.open(folder, SMALL) as writer:
            tail = writer.tail
            assert tail.complete_scn >= self.synced_scn
            wanted = sorted(row for row in self.appended if row[0] <= tail.complete_scn)
            assert seen(ChangeLogReader(folder).blocks(0)) == wanted
            # The log goes on as if nothing had happened, with the cut transaction sent again.
            writer.append(window(tail.complete_scn + 1, 7, text="again"))
            writer.sync()
            rest = seen(ChangeLogReader(folder).blocks(tail.complete_scn))
            assert [row[:2] for row in rest] == [(tail.complete_scn + 1, i) for i in range(7)]
        return tail.complete_scn


def copied(crash: Crash, name: str) -> Path:
    folder = crash.folder.with_name(name)
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(crash.folder, folder)
    return folder


@req("D46")
def test_a_torn_tail_is_cut_at_every_place(tmp_path):
    crash = Crash(tmp_path / "log")
    crash.write([window(1), window(2), None, window(3), window(4, 9)])
    path, durable = crash.durable
    end = path.stat().st_size
    survivors = set()
    for length in sorted({*range(durable, end, 37), *range(end - 3, end + 1)}):
        folder = copied(crash, "torn")
        os.truncate(folder / path.name, length)
        survivors.add(crash.check(folder))
    assert survivors == {2, 3, 4}


@pytest.mark.parametrize("junk", [b"\0", b"\xff", b"HRBK"])
def test_lost_pages_before_pages_that_arrived_are_cut_too(tmp_path, junk):
    crash = Crash(tmp_path / "log")
    crash.write([window(1), None, window(2), window(3)])
    path, durable = crash.durable
    for start in range(durable, path.stat().st_size, 256):
        folder = copied(crash, "torn")
        with (folder / path.name).open("r+b") as file:
            file.seek(start)
            file.write((junk * 64)[:64])
        assert crash.check(folder) in (1, 2)


@req("B-1")
@pytest.mark.parametrize("synced", [True, False])
def test_an_unfinished_transaction_is_cut_even_when_it_was_synced(tmp_path, synced):
    crash = Crash(tmp_path / "log")
    piece = [window(3, 20, first=20 * i, last=False) for i in range(6)]
    crash.write([window(1), window(2), None, *piece, *([None] if synced else [])])
    assert len(list(crash.folder.glob("*.seg"))) > 2
    assert crash.check(crash.folder) == 2


def test_whole_transactions_in_the_block_of_an_unfinished_one_survive(tmp_path):
    crash = Crash(tmp_path / "log")
    crash.write([joined([window(1), window(2), window(3, last=False)]), None])
    assert crash.synced_scn == 2
    assert crash.check(crash.folder) == 2


def test_coverage_said_inside_an_unfinished_transaction_survives_its_cut(tmp_path):
    crash = Crash(tmp_path / "log")
    crash.write([window(1), window(50, last=False), coverage(40), None])
    with ChangeLogWriter.open(crash.folder, SMALL) as writer:
        assert (writer.tail.complete_scn, writer.tail.covered_scn) == (1, 49)
    assert list(ChangeLogReader(crash.folder).blocks(49)) == []


def test_a_reader_that_saw_the_log_before_the_cut_sees_it_right_after(tmp_path):
    crash = Crash(tmp_path / "log")
    piece = [window(2, 20, first=20 * i, last=False) for i in range(6)]
    crash.write([window(1), *piece, None])
    reader = ChangeLogReader(crash.folder)
    assert scns(reader.blocks(0)) == [1]
    with ChangeLogWriter.open(crash.folder, SMALL) as writer:
        assert scns(reader.blocks(0)) == [1]
        writer.append(window(2, 5, text="again"))
        writer.sync()
        assert seen(reader.blocks(1)) == [(2, i, "public.t") for i in range(5)]


def test_bytes_behind_a_cut_never_come_back(tmp_path):
    crash = Crash(tmp_path / "log")
    crash.write([window(1), None, window(2, 3, last=False), None])
    for _ in range(3):
        ChangeLogWriter.open(crash.folder, SMALL).close()
    with ChangeLogWriter.open(crash.folder, SMALL) as writer:
        writer.append(window(5))
        writer.sync()
    ChangeLogWriter.open(crash.folder, SMALL).close()
    assert scns(ChangeLogReader(crash.folder).blocks(0)) == [1, 5]


@pytest.mark.parametrize("tail", ["missing", "garbage", "stale"])
def test_a_tail_that_did_not_reach_the_disk_costs_nothing(tmp_path, tail):
    crash = Crash(tmp_path / "log")
    crash.write([window(1), None])
    old = (crash.folder / "tail").read_bytes()
    crash.write([window(scn) for scn in range(2, 20)] + [None])
    assert crash.synced_scn == 19
    match tail:
        case "missing":
            (crash.folder / "tail").unlink()
        case "garbage":
            (crash.folder / "tail").write_bytes(b"x" * 4096)
        case "stale":
            (crash.folder / "tail").write_bytes(old)
    assert crash.check(crash.folder) == 19
    with ChangeLogWriter.open(crash.folder, SMALL) as writer:
        assert writer.generation == 4


@req("B-12", "D64")
def test_damage_before_the_durable_end_is_named_and_nothing_is_cut(tmp_path):
    crash = Crash(tmp_path / "log")
    crash.write([window(1), window(2), window(3), None])
    path, durable = crash.durable
    starts = [ref.offset for ref in ChangeLogReader(crash.folder).refs(0)]
    for place in range(SEGMENT_HEADER, durable, 101):
        folder = copied(crash, "damaged")
        flip(folder / path.name, place)
        offset = max(start for start in starts if start <= place)
        with pytest.raises(CorruptSegment, match=rf"{path.name}.* byte {offset}:") as caught:
            ChangeLogWriter.open(folder, SMALL)
        assert caught.value.next_step
        flip(folder / path.name, place)
        assert crash.check(folder) == 3


def test_a_segment_shorter_than_what_was_durable_is_named(tmp_path):
    crash = Crash(tmp_path / "log")
    crash.write([window(1), window(2), None])
    path, durable = crash.durable
    second = next(ChangeLogReader(crash.folder).refs(1)).offset
    for length in (durable - 1, second, second - 64, SEGMENT_HEADER, 10, 0):
        folder = copied(crash, "short")
        os.truncate(folder / path.name, length)
        with pytest.raises(CorruptSegment, match=path.name):
            ChangeLogWriter.open(folder, SMALL)
        with pytest.raises(CorruptSegment, match=path.name):
            list(ChangeLogReader(folder).blocks(0))


@req("B-12", "D64")
def test_a_reader_delivers_no_damaged_byte_of_any_segment(tmp_path):
    crash = Crash(tmp_path / "log")
    crash.write([window(1), window(2, 100), window(3, 100), None])
    paths = sorted(crash.folder.glob("*.seg"))
    assert len(paths) == 2
    for path in paths:
        for place in [*range(256), *range(256, path.stat().st_size, 29)]:
            flip(path, place)
            with pytest.raises(CorruptSegment, match=path.name):
                list(ChangeLogReader(crash.folder).blocks(0))
            flip(path, place)
    assert scns(ChangeLogReader(crash.folder).blocks(0)) == [1, 2, 3]


def test_a_segment_that_was_deleted_is_a_lost_log(tmp_path):
    crash = Crash(tmp_path / "log")
    crash.write([window(scn) for scn in range(1, 20)] + [None])
    folder = copied(crash, "less")
    for path in folder.glob("*.seg"):
        path.unlink()
    with pytest.raises(ChangeLogLost):
        ChangeLogWriter.open(folder, SMALL)
    folder = copied(crash, "less")
    (folder / crash.durable[0].name).unlink()
    with pytest.raises(ChangeLogLost):
        ChangeLogWriter.open(folder, SMALL)
    folder = copied(crash, "less")
    sorted(folder.glob("*.seg"))[1].unlink()
    with pytest.raises(ChangeLogLost):
        list(ChangeLogReader(folder).blocks(0))
    with pytest.raises(ChangeLogLost):
        ChangeLogWriter.open(folder, SMALL)


def flip(path: Path, place: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 0x10]))


def tear(path: Path, durable: int, dice: random.Random) -> None:
    """Lose some of the pages behind the durable length, as a power cut does: in any order."""
    data = bytearray(path.read_bytes())
    for start in range(durable, len(data), 512):
        match dice.randrange(4):
            case 0:
                data[start : start + 512] = bytes(len(data[start : start + 512]))
            case 1:
                data[start : start + 512] = dice.randbytes(len(data[start : start + 512]))
    path.write_bytes(data[: dice.randint(durable, len(data))])


@req("B-1", "D46")
@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_any_crash_leaves_a_prefix_with_everything_synced(seed):
    dice = random.Random(seed)
    steps: list[Block | None] = []
    scn = 0
    for _ in range(dice.randint(1, 15)):
        scn += dice.randint(1, 3)
        pieces = dice.choice([1, 1, 1, 2, 5])
        for i in range(pieces):
            steps.append(window(scn, 6, first=6 * i, last=i == pieces - 1))
            if dice.random() < 0.3:
                steps.append(None)
    del steps[dice.randint(0, len(steps)) :]
    with tempfile.TemporaryDirectory() as name:
        crash = Crash(Path(name) / "log")
        crash.write(steps)
        tails = (crash.folder / "tail").read_bytes()
        newest = max(crash.folder.glob("*.seg"), default=None)
        if newest is not None:
            tear(newest, crash.durable_bytes if newest == crash.path else SEGMENT_HEADER, dice)
        if dice.random() < 0.3:
            (crash.folder / "tail").unlink()
        elif dice.random() < 0.3:
            (crash.folder / "tail").write_bytes(tails[:2048] + bytes(2048))
        crash.check(crash.folder)


def test_what_was_not_synced_is_written_again_piece_by_piece(tmp_path, monkeypatch):
    """One call of the system moves two gibibytes at most, and memory has less."""
    with ChangeLogWriter.open(tmp_path, SMALL, sync=lambda _descriptor: None) as writer:
        writer.append(window(1, 50))
        _, known = writer.durable
        end = writer.used_bytes
    written = []
    pwrite = os.pwrite

    def noting(descriptor, data, offset):
        written.append((offset, len(data)))
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr("headrace.changelog.recovery._PIECE_BYTES", 100)
    monkeypatch.setattr(os, "pwrite", noting)
    ChangeLogWriter.open(tmp_path, SMALL).close()
    begin = max(known, SEGMENT_HEADER)
    again = [(place, min(100, end - place)) for place in range(begin, end, 100)]
    assert written[: len(again)] == again
    assert len(seen(ChangeLogReader(tmp_path).blocks(0))) == 50
