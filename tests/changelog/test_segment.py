"""The segment header, by hand and damaged."""

from __future__ import annotations

import struct
import zlib

import pytest

from headrace.changelog.segment import (
    SegmentHeader,
    SegmentName,
    list_segments,
    read_segment_header,
)
from headrace.errors import CorruptSegment

NAME = SegmentName(3, 17)
HEADER = SegmentHeader(NAME, SegmentName(2, 15), 8000, 300, 299, 299, 77, 88)


def test_the_header_lies_where_the_specification_says():
    data = HEADER.encode()
    assert struct.unpack("<4sHHQQQQQqqqqq36sI", data) == (
        b"HRSG", 1, 0, 17, 3, 15, 2, 8000, 300, 299, 299, 77, 88, bytes(36), zlib.crc32(data[:124]),
    )  # fmt: skip
    assert len(data) == 128
    assert read_segment_header(data, NAME) == HEADER


def test_any_flipped_byte_is_refused():
    data = bytearray(HEADER.encode())
    for place in range(len(data)):
        data[place] ^= 4
        with pytest.raises(CorruptSegment, match=str(NAME)):
            read_segment_header(data, NAME)
        data[place] ^= 4


def test_a_file_under_another_name_is_refused():
    with pytest.raises(CorruptSegment, match="another file"):
        read_segment_header(HEADER.encode(), SegmentName(3, 18))


def test_names_sort_by_generation_first_and_other_files_are_left_alone(tmp_path):
    names = [SegmentName(1, 1), SegmentName(1, 9), SegmentName(2, 5)]
    for name in names:
        (tmp_path / str(name)).touch()
    for other in ("tail", "writer.lock", "0000000001.seg", "x.tmp"):
        (tmp_path / other).touch()
    assert list_segments(tmp_path) == names
    assert str(NAME) == "0000000017.0000000003.seg"
