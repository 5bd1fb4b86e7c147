"""The tail page: always a whole record, and a successor is noticed."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pytest

from headrace.changelog.segment import SegmentName
from headrace.changelog.tail import Tail, TailFile, TailRecord, TailView
from headrace.errors import ChangeLogError, CorruptSegment, LeaseLost

RECORD = TailRecord(3, 8, SegmentName(2, 17), 4096, 15, Tail(100, 200, 210, 999))


def test_the_record_lies_where_the_specification_says():
    data = RECORD.encode()
    assert struct.unpack("<4sHHQQQQQQqqqqI", data) == (
        b"HRTL", 1, 0, 3, 8, 17, 2, 4096, 15, 100, 200, 210, 999, zlib.crc32(data[:88]),
    )  # fmt: skip


def test_a_reader_finds_the_newest_record(tmp_path):
    view = TailView(tmp_path)
    assert view.read() is None
    page = TailFile(tmp_path, RECORD)
    assert view.read() == RECORD
    for length in range(5000, 5010):
        page.publish(replace(RECORD, length=length))
        found = view.read()
        assert found == page.record
        assert found is not None
        assert found.length == length
    page.close()


@pytest.mark.parametrize("torn", [0, 2048])
def test_one_torn_slot_leaves_the_other(tmp_path, torn):
    page = TailFile(tmp_path, RECORD)
    page.publish(replace(RECORD, length=5000))
    page.flush()
    page.close()
    data = bytearray((tmp_path / "tail").read_bytes())
    data[torn + 30] ^= 1
    (tmp_path / "tail").write_bytes(data)
    found = TailView(tmp_path).read()
    assert found is not None
    assert found.length in (4096, 5000)


def test_a_reader_that_looks_while_a_record_is_written_finds_it_whole_afterwards(tmp_path):
    page = TailFile(tmp_path, RECORD)
    page.publish(replace(RECORD, length=5000))
    view = TailView(tmp_path)
    found = view.read()
    assert found is not None
    assert found.length == 5000
    data = TailRecord(3, 10, SegmentName(2, 17), 6000, 15, Tail(100, 300, 310, 999)).encode()
    with (tmp_path / "tail").open("r+b") as file:
        # All but the checksum has been written when the reader looks.
        file.write(data[:-4])
        file.flush()
        assert view.read() == found
        file.write(data[-4:])
        file.flush()
        now = view.read()
    assert now is not None
    assert now.length == 6000
    page.close()


@pytest.mark.parametrize("size", [0, 100, 4096])
def test_a_damaged_page_is_a_named_error(tmp_path, size):
    (tmp_path / "tail").write_bytes(b"x" * size)
    with pytest.raises(CorruptSegment, match="tail"):
        TailView(tmp_path).read()


def test_another_version_is_a_named_error(tmp_path):
    data = RECORD.encode()[:4] + struct.pack("<H", 2) + RECORD.encode()[6:88]
    (tmp_path / "tail").write_bytes((data + struct.pack("<I", zlib.crc32(data))).ljust(4096, b"\0"))
    with pytest.raises(ChangeLogError, match="version 2"):
        TailView(tmp_path).read()


def test_a_reader_turns_to_the_page_of_the_successor(tmp_path):
    view = TailView(tmp_path)
    first = TailFile(tmp_path, RECORD)
    first.check()
    assert view.read() == RECORD
    second = TailFile(tmp_path, replace(RECORD, generation=4))
    with pytest.raises(LeaseLost):
        first.check()
    first.publish(replace(RECORD, length=9999))
    found = view.read()
    assert found is not None
    assert (found.generation, found.length) == (4, 4096)
    second.check()
