"""Small blocks for many readers: one block, with everything that was in them."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from headrace.changelog import ChangeLogWriter, StretchReader
from headrace.changelog.stretches import Spot, Stretch
from headrace.model.block import Block
from headrace.relay.server.feed import Feed
from headrace.relay.server.joining import _MANY, _TOGETHER_BYTES, Joining
from headrace.relay.server.request import StreamRequest
from headrace.relay.server.settings import ServedSource
from headrace.relay.server.supply import Stored
from headrace.wire import decode_block, encode_block
from headrace.wire.block import read_header
from headrace.wire.body import Readable
from tests.changelog.played import STEPS, played
from tests.changelog.windows import OTHER, TABLE, seen, synced, window
from tests.relay.server.asking import stream
from tests.requirements import req


def blocks_in(data: Readable) -> list[Block]:
    found, at = [], 0
    while at < len(data):
        length = read_header(data, at).length
        found.append(decode_block(bytes(data[at : at + length])))
        at += length
    return found


def at(stretch: list[Block]) -> tuple[Spot, Stretch]:
    data = memoryview(b"".join(encode_block(block) for block in stretch))
    return Spot(("", 0), 0, 0), Stretch(data, Spot(("", 0), len(data), 0))  # type: ignore[arg-type]


@req("D42")
@settings(max_examples=40)
@given(STEPS)
def test_nothing_is_lost_and_nothing_comes_in_another_order(history):
    with tempfile.TemporaryDirectory() as name:
        history = [step for step in history if step[0] not in ("retain", "restart")]
        with played(Path(name), history):
            pass
        reader, joining = StretchReader(Path(name)), Joining()
        reader.look()
        spot = reader.find(0, 2**30) if reader.exists else None
        while spot is not None and (stretch := reader.after(spot, 2**20)) is not None:
            stored = blocks_in(stretch.data)
            sent = blocks_in(joining.joined(0, spot, stretch, _MANY))
            assert seen(sent) == seen(stored)
            assert sent[-1].covered_scn == max(block.covered_scn for block in stored)
            spot = stretch.end


def test_neighbours_become_one_block_once_for_all():
    joining = Joining()
    start, stretch = at([window(scn) for scn in range(1, 6)])
    sent = joining.joined(0, start, stretch, _MANY)
    assert len(blocks_in(sent)) == 1
    assert joining.joined(0, start, stretch, _MANY) is sent
    assert len(sent) < len(stretch.data) / 2


@pytest.mark.parametrize("readers", [1, _MANY - 1])
def test_few_readers_get_what_is_stored(readers):
    start, stretch = at([window(1), window(2)])
    assert Joining().joined(0, start, stretch, readers) is stretch.data


def test_what_is_large_or_open_goes_out_as_it_is_stored():
    start, large = at([window(scn, 200) for scn in range(1, 20)])
    assert len(large.data) > _TOGETHER_BYTES
    assert Joining().joined(0, start, large, _MANY) is large.data
    start, opened = at([window(1), window(2, 3, last=False), window(2, 3, first=3)])
    assert Joining().joined(0, start, opened, _MANY) is opened.data


def test_damage_is_left_for_the_reader_to_find():
    start, stretch = at([window(1), window(2)])
    for place in (-70, 100):
        damaged = bytearray(stretch.data)
        damaged[place] ^= 1
        found = Stretch(memoryview(damaged), stretch.end)
        assert Joining().joined(0, start, found, _MANY) is found.data


@req("D42")
def test_many_readers_of_a_relay_all_get_it_whole(folder, writer, url):
    synced(writer, window(1))
    with ExitStack() as opened:
        readers = [opened.enter_context(stream(url, after=1)) for _ in range(_MANY + 2)]
        expected = [window(scn, 2, tables=(TABLE, OTHER)) for scn in range(2, 8)]
        synced(writer, *expected)
        for frames in readers:
            assert seen(frames.until(7)) == seen(expected)


@req("D42")
def test_many_readers_that_are_behind_share_what_is_joined(tmp_path):
    """From wherever they set out, they come to the places of the index, and go on together."""
    with ChangeLogWriter.open(tmp_path) as writer:
        synced(writer, *(window(scn, 3) for scn in range(1, 400)))
    (source,) = [ServedSource("shop", tmp_path, tmp_path / "schemas")]
    begun: list[set[Spot]] = []
    sizes: set[int] = set()
    for after in (0, 7, 30):
        feed = Feed(source)
        feed.reader.look()
        spot = feed.reader.find(after, 2**30)
        assert spot is not None
        supply = Stored(feed, spot, StreamRequest.parse({"source": "shop", "after": str(after)}))
        looks = counted_looks(feed)
        spots, got = set(), []
        with joined_by(feed, _MANY):
            while pieces := asyncio.run(supply.next()):
                assert looks() == 1, "the index is looked at once for each piece"
                got += [block for piece in pieces for block in blocks_in(piece)]
                sizes.add(len(blocks_in(pieces[0])))
                spots.add(supply._spot)
        assert seen(got) == seen([window(scn, 3) for scn in range(after + 1, 400)])
        begun.append(spots)
    assert sizes == {1}
    assert len(begun[0]) > 3
    assert begun[0] == begun[1] == begun[2]


@contextmanager
def joined_by(feed: Feed, streams: int) -> Iterator[None]:
    with ExitStack() as joined:
        for _ in range(streams):
            joined.enter_context(feed.joined())
        yield


def counted_looks(feed: Feed) -> Callable[[], int]:
    """Return what tells how often the log was looked at for what follows, since it told last."""
    counts = [0]
    after, blocks = feed.reader.after, feed.reader.blocks

    def looked(of: Callable[..., Any]) -> Callable[..., Any]:
        def look(*given: Any) -> Any:
            counts[0] += 1
            return of(*given)

        return look

    feed.reader.after, feed.reader.blocks = looked(after), looked(blocks)  # type: ignore[method-assign]

    def told() -> int:
        count, counts[0] = counts[0], 0
        return count

    return told


def test_few_readers_that_are_behind_get_large_pieces_as_they_are_stored(tmp_path):
    with ChangeLogWriter.open(tmp_path) as writer:
        synced(writer, *(window(scn, 3) for scn in range(1, 400)))
    feed = Feed(ServedSource("shop", tmp_path, tmp_path / "schemas"))
    feed.reader.look()
    spot = feed.reader.find(0, 2**30)
    assert spot is not None
    supply = Stored(feed, spot, StreamRequest.parse({"source": "shop", "after": "0"}))
    with joined_by(feed, _MANY - 1):
        (piece,) = asyncio.run(supply.next())
    assert len(blocks_in(piece)) == 399
