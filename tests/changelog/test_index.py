"""The SCN index: bounded by bytes, and most of a segment is never looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.changelog import ChangeLogReader, ChangeLogSettings, ChangeLogWriter
from headrace.changelog.chain import Link
from headrace.changelog.index import STRIDE_BYTES, ScnIndex, walk
from headrace.changelog.mapped import MappedSegment
from headrace.changelog.opened import OpenedChain
from headrace.errors import CorruptSegment
from tests.changelog.windows import SEGMENT_HEADER, scns, synced, window
from tests.requirements import req

LAST = 600


@pytest.fixture
def segment(tmp_path):
    with ChangeLogWriter.open(tmp_path, ChangeLogSettings(segment_bytes=8 * 2**20)) as writer:
        for scn in range(1, LAST + 1):
            writer.append(window(scn * 10))
        writer.sync()
        path, length = writer.durable
    assert path is not None
    (name,) = {ref.segment for ref in ChangeLogReader(tmp_path).refs(0)}
    assert name == path.name
    (link,) = opened_links(tmp_path)
    return MappedSegment(tmp_path, link.name), length


def opened_links(folder: Path) -> list[Link]:
    chain = OpenedChain(folder)
    chain.refresh()
    return chain.links


@req("D57")
def test_the_index_is_bounded_by_bytes_and_not_by_blocks(segment):
    mapped, length = segment
    index = ScnIndex(mapped.header)
    index.extend(mapped.view, length)
    assert length > 10 * STRIDE_BYTES
    assert 5 < len(index) <= length // STRIDE_BYTES + 1 < LAST / 10


@req("D57")
def test_a_look_up_walks_one_stretch_and_not_the_segment(segment):
    mapped, length = segment
    index = ScnIndex(mapped.header)
    index.extend(mapped.view, length)
    headers = list(walk(mapped.view, SEGMENT_HEADER, length, mapped.name))
    for after in range(0, LAST * 10 + 5, 7):
        start = index.start(after)
        assert all(h.last_scn <= after for offset, h in headers if offset < start)
        needed = next((offset for offset, h in headers if h.last_scn > after), length)
        assert start <= needed < start + 2 * STRIDE_BYTES


def test_growing_in_steps_gives_the_same_answers(segment):
    mapped, length = segment
    whole, grown = ScnIndex(mapped.header), ScnIndex(mapped.header)
    whole.extend(mapped.view, length)
    for offset, header in walk(mapped.view, SEGMENT_HEADER, length, mapped.name):
        grown.extend(mapped.view, offset + header.length)
    before_last = (LAST - 1) * 10
    assert all(grown.start(scn) == whole.start(scn) for scn in range(0, before_last, 13))


@req("D57")
def test_who_follows_the_end_walks_only_what_came_last(segment):
    mapped, length = segment
    offsets = [offset for offset, _ in walk(mapped.view, SEGMENT_HEADER, length, mapped.name)]
    index = ScnIndex(mapped.header)
    for number, end in enumerate([*offsets[1:], length]):
        index.extend(mapped.view, end)
        assert index.start(number * 10) == offsets[number]
        # A second look at the same end.
        index.extend(mapped.view, end)
        assert index.start(number * 10 + 10) == offsets[number]
        assert index.start(number * 10 - 1) <= offsets[max(number - 1, 0)]


def test_a_walk_that_does_not_end_at_a_block_is_damage(segment):
    mapped, length = segment
    with pytest.raises(CorruptSegment, match="passes byte"):
        list(walk(mapped.view, SEGMENT_HEADER, length - 64, mapped.name))


def test_a_position_in_the_last_segments_needs_no_old_one(tmp_path):
    with ChangeLogWriter.open(tmp_path, ChangeLogSettings(segment_bytes=8192)) as writer:
        for scn in range(1, 60):
            synced(writer, window(scn))
    reader = ChangeLogReader(tmp_path)
    newest = next(reader.refs(55)).segment
    for path in tmp_path.glob("*.seg"):
        if path.name < newest:
            # The header says all that is needed of it.
            path.write_bytes(path.read_bytes()[:SEGMENT_HEADER])
    assert scns(ChangeLogReader(tmp_path).blocks(58)) == [59]
