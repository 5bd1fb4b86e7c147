"""What keeps streamed transactions: every byte once and in order, in memory and on disk; nothing is left behind."""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path

import pytest

from headrace.errors import DiskFull, ProtocolError
from headrace.model.schema import KeyCheck
from headrace.sources.postgres.assembler import Assembler
from headrace.sources.postgres.decoder import ENGINES, make_decoder
from headrace.sources.postgres.frames import FrameBuffer
from headrace.sources.postgres.spools import Spool, Spools
from tests.faults.disks import FULL, on_a_full_disk
from tests.sources.postgres import wire
from tests.sources.postgres.test_assembler import Versions, unexpected
from tests.waiting import until

PARTS = [b"first" * 3000, b"", b"second", b"third" * 70_000, b"!"]


def read(spool: Spool) -> list[bytes]:
    found = []
    while (part := spool.next_part()) is not None:
        found.append(bytes(part))
    return found


@pytest.mark.parametrize("on_disk_after", [None, 1, 2, len(PARTS)])
def test_what_was_added_comes_back_once_and_in_order(
    tmp_path: Path, on_disk_after: int | None
) -> None:
    """Also what is so little that it waits for more before it is written."""
    spool = Spool(tmp_path / "spool")
    for number, part in enumerate(PARTS):
        if number == on_disk_after:
            spool.to_disk()
        spool.add(part)
    if on_disk_after == len(PARTS):
        spool.to_disk()
    assert (spool.memory == 0) == (on_disk_after is not None)
    assert b"".join(read(spool)) == b"".join(PARTS)
    assert read(spool) == []
    spool.close()
    assert not list(tmp_path.glob("spool/*"))


def test_a_file_and_its_map_are_given_up_with_the_spool(tmp_path: Path) -> None:
    """They are larger than what is held in memory: nothing may keep them."""
    spool = Spool(tmp_path)
    spool.add(b"much")
    spool.to_disk()
    part = spool.next_part()
    assert part is not None
    mapped = part.obj
    assert isinstance(mapped, mmap.mmap)
    spool.close()
    with pytest.raises(ValueError, match="released"):
        bytes(part)
    until(lambda: mapped.closed, "the map is gone")


@on_a_full_disk
def test_what_finds_no_room_when_it_is_read_is_told_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last few bytes wait for more until then."""
    full = FULL.open("w+b")
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_given: full)
    spool = Spool(tmp_path)
    spool.add(b"few")
    spool.to_disk()
    with pytest.raises(DiskFull, match="no room"):
        spool.next_part()
    assert full.closed


def test_the_largest_go_to_disk_until_the_others_fit(tmp_path: Path) -> None:
    spools = Spools(tmp_path / "spool", memory_bytes=1000)
    for xid, size in ((1, 400), (2, 500), (3, 300)):
        spools.begin(xid, first=True)
        spools.add(xid, b"x" * size)
    spools.add(2, b"y")
    memory = {xid: spools.take(xid) for xid in (1, 2, 3)}
    assert {xid: spool.memory for xid, spool in memory.items()} == {1: 400, 2: 0, 3: 300}
    assert b"".join(read(memory[2])) == b"x" * 500 + b"y"


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("on_disk", [False, True])
def test_a_spool_that_ends_inside_a_frame_is_not_taken_for_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, on_disk: bool
) -> None:
    monkeypatch.setenv("HEADRACE_DECODER", name)
    spools = Spools(tmp_path, memory_bytes=0 if on_disk else 1 << 20)
    decoder = make_decoder(100, 1000, 1 << 20)
    assembler = Assembler(Versions(KeyCheck.IMMEDIATE), "p", decoder, spools, unexpected)
    spools.begin(7, first=True)
    spools.add(7, wire.frame(wire.in_stream(wire.insert(16384, [b"1", None]), 7))[:-1])
    frames = FrameBuffer()
    frames.add(wire.frame(wire.stream_commit(7, 20, 24, 5)))
    with pytest.raises(ProtocolError, match="ends inside a frame"):
        assembler.advance(frames)
