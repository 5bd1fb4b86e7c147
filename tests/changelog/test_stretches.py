"""The log as bytes: what is given out is what is stored, block for block, and never half a transaction."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.changelog import (
    BlockRef,
    ChangeLogReader,
    ChangeLogSettings,
    ChangeLogWriter,
    StretchReader,
)
from headrace.changelog.index import STRIDE_BYTES
from headrace.changelog.segment import SEGMENT_HEADER_BYTES
from headrace.errors import CorruptSegment, ScnNotFound
from headrace.model.block import Block
from headrace.wire import decode_block, read_header
from tests.changelog.played import SMALL, STEPS, last_scn, played
from tests.changelog.windows import commit_us, coverage, scns, seen, synced, window
from tests.requirements import req


@pytest.fixture
def writer(tmp_path):
    with ChangeLogWriter.open(tmp_path / "log", SMALL) as log:
        yield log


@pytest.fixture
def reader(tmp_path):
    return StretchReader(tmp_path / "log")


def found(reader: StretchReader, after: int, step: int = 1 << 30):
    reader.look()
    while (spot := reader.find(after, step)) is None:
        pass
    return spot


def bytes_from(
    reader: StretchReader, after: int, most: int = 1 << 30, step: int = 1 << 30
) -> bytes:
    spot, out = found(reader, after, step), b""
    while (stretch := reader.after(spot, most)) is not None:
        out += stretch.data
        spot = stretch.end
    return out


def decoded(data: bytes) -> list[Block]:
    blocks = []
    while data:
        length = read_header(data).length
        blocks.append(decode_block(data[:length]))
        data = data[length:]
    return blocks


@req("D55", "B-1", "D42")
@settings(max_examples=40)
@given(STEPS, st.data())
def test_any_position_gives_the_stored_bytes_of_a_whole_suffix_or_is_refused(history, data):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        early = StretchReader(folder)

        def looked() -> None:
            early.look()
            early.find(early.tail.covered_scn, data.draw(st.sampled_from([1, 4000, 1 << 30])))

        with played(folder, history, looked) as blocks:
            rows = ChangeLogReader(folder)
            tail = rows.tail()
            for reader in (early, StretchReader(folder)):
                for after in range(last_scn(blocks) + 3):
                    if not tail.oldest_scn <= after <= tail.covered_scn:
                        with pytest.raises(ScnNotFound):
                            found(reader, after)
                        continue
                    most = data.draw(st.sampled_from([1, 700, 5000, 1 << 30]))
                    step = data.draw(st.sampled_from([1, 3000]))
                    given_out = decoded(bytes_from(reader, after, most, step))
                    assert seen(b.after(after) for b in given_out) == seen(rows.blocks(after))
                    sent = bytes_from(reader, after)
                    assert all(stored_bytes(folder, ref) in sent for ref in rows.refs(after))


def stored_bytes(folder: Path, ref: BlockRef) -> bytes:
    return (folder / ref.segment).read_bytes()[ref.offset : ref.offset + ref.length]


def test_following_the_end_gives_each_block_once(writer, reader):
    spot, out = found(reader, 0), []
    for scn in range(1, 60):
        synced(writer, window(scn))
        assert reader.look()
        assert not reader.look()
        stretch = reader.after(spot, 1 << 20)
        assert stretch is not None
        out += scns(decoded(bytes(stretch.data)))
        spot = stretch.end
        assert spot.covered_scn == scn
        assert reader.after(spot, 1 << 20) is None
    assert out == list(range(1, 60))


@req("D41", "B-1")
def test_a_transaction_that_has_not_ended_is_not_given_out(writer, reader):
    synced(writer, window(1), window(2, 20, last=False), window(2, 20, first=20, last=False))
    assert scns(decoded(bytes_from(reader, 0))) == [1]
    spot = found(reader, 1)
    assert reader.after(spot, 1 << 20) is None
    reopened = writer.reopened()
    synced(reopened, window(2, 5), window(3))
    reader.look()
    stretch = reader.after(spot, 1 << 20)
    assert stretch is not None
    assert scns(decoded(bytes(stretch.data))) == [2, 3]
    reopened.close()


def test_a_spot_in_a_segment_that_was_dropped_is_refused_with_what_there_is(writer, reader):
    for scn in range(1, 30):
        synced(writer, window(scn))
    stretch = reader.after(found(reader, 0), 1000)
    assert stretch is not None
    held = bytes(stretch.data)
    for scn in range(30, 90):
        synced(writer, window(scn))
    writer.retain()
    assert reader.look()
    with pytest.raises(ScnNotFound) as caught:
        reader.after(stretch.end, 1000)
    assert caught.value.scn == stretch.end.covered_scn
    assert (caught.value.oldest, caught.value.newest) == (reader.tail.oldest_scn, 89)
    # What was given out stays as it was, though the file is gone.
    assert bytes(stretch.data) == held


def test_blocks_are_given_up_to_the_size_that_was_asked_for_and_one_at_least(writer, reader):
    synced(writer, *(window(scn) for scn in range(1, 5)))
    spot = found(reader, 0)
    (first,) = reader.blocks(spot, 1)
    length = first.header.length
    assert [len(reader.blocks(spot, length * n + 1)) for n in (1, 2, 3)] == [1, 2, 3]
    after = reader.after(spot, 1)
    assert after is not None
    assert len(after.data) >= length


def test_small_blocks_are_given_up_to_the_next_place_of_the_index_alone(tmp_path):
    with ChangeLogWriter.open(tmp_path / "log") as log:
        synced(log, *(window(scn, 3) for scn in range(1, 200)))
    reader = StretchReader(tmp_path / "log")
    spot = found(reader, 0)
    (first,) = reader.blocks(spot, 1)
    length, most = first.header.length, 1 << 20
    whole, next_place = reader.after(spot, most), reader.after(spot, 1)
    assert whole is not None
    assert next_place is not None
    assert STRIDE_BYTES <= len(next_place.data) < len(whole.data)
    # A byte less, and the first block is large.
    assert reader.after(spot, most, length) == next_place
    assert reader.after(spot, most, length - 1) == reader.after(spot, most) == whole
    # Little is given whole, however small its blocks are.
    near = found(reader, 195)
    rest = reader.after(near, most, length)
    assert rest == reader.after(near, most)
    assert rest is not None
    assert scns(decoded(bytes(rest.data))) == [196, 197, 198, 199]


@req("B-12", "D64")
def test_what_stands_before_a_damaged_header_comes_and_the_damage_is_named(
    writer, reader, tmp_path
):
    synced(writer, *(window(scn) for scn in range(1, 6)))
    _, _, third, *_ = ChangeLogReader(tmp_path / "log").refs(0)
    with (tmp_path / "log" / third.segment).open("rb+") as file:
        file.seek(third.offset + 40)
        byte = file.read(1)
        file.seek(third.offset + 40)
        file.write(bytes([byte[0] ^ 1]))
    spot = found(reader, 0)
    stretch = reader.after(spot, 1 << 20)
    assert stretch is not None
    assert scns(decoded(bytes(stretch.data))) == [1, 2]
    with pytest.raises(CorruptSegment, match=str(third.offset)):
        reader.after(stretch.end, 1 << 20)


def test_a_time_is_found_before_the_first_transaction_at_or_after_it(writer, reader):
    for scn in range(10, 60, 2):
        synced(writer, window(scn), coverage(scn + 1))
    reader.look()
    for scn in range(10, 58):
        wanted = scn + scn % 2
        assert reader.since(commit_us(scn)) == wanted - 1
    assert reader.since(commit_us(59)) == 59
    assert reader.since(0) == 9
    writer.retain()
    reader.look()
    assert reader.tail.oldest_scn > 10
    with pytest.raises(ScnNotFound):
        reader.since(commit_us(10))


def test_a_log_that_does_not_exist_yet_is_followed_from_its_beginning(tmp_path, reader):
    assert not reader.look()
    assert not reader.exists
    spot = found(reader, 0)
    assert reader.after(spot, 1 << 20) is None
    with ChangeLogWriter.open(tmp_path / "log", SMALL) as writer:
        synced(writer, window(1))
        assert reader.look()
        stretch = reader.after(spot, 1 << 20)
    assert reader.exists
    assert stretch is not None
    assert stretch.data[:4] == b"HRBK"
    assert stretch.end.offset == SEGMENT_HEADER_BYTES + len(stretch.data)


def test_another_log_in_the_same_folder_is_not_taken_for_the_one_before(tmp_path, reader):
    def begun_anew(text: str, count: int) -> None:
        shutil.rmtree(tmp_path / "log", ignore_errors=True)
        with ChangeLogWriter.open(tmp_path / "log", ChangeLogSettings()) as writer:
            for scn in range(1, count):
                synced(writer, window(scn, text=text))

    rows = ChangeLogReader(tmp_path / "log")
    begun_anew("old", 9)
    for text, count in (("old", 9), ("new", 3)):
        begun_anew(text, count)
        found = decoded(bytes_from(reader, 0))
        assert found[0].bodies[0].batch.column("c1").to_pylist() == [text] * 2
        assert next(rows.blocks(0)).bodies[0].batch.column("c1")[0].as_py() == text


def test_another_log_that_got_further_while_nobody_looked_is_not_taken_for_the_one_before(
    tmp_path, reader
):
    lives = []
    for text, count in (("old", 3), ("new", 9), ("same", 9)):
        shutil.rmtree(tmp_path / "log", ignore_errors=True)
        with ChangeLogWriter.open(tmp_path / "log", ChangeLogSettings()) as writer:
            for scn in range(1, count):
                synced(writer, window(scn, text=text))
            found = decoded(bytes_from(reader, 0))
        assert found[0].bodies[0].batch.column("c1").to_pylist() == [text] * 2
        assert scns(found) == list(range(1, count))
        lives.append(reader.life)
    assert lives == sorted(set(lives))
    with ChangeLogWriter.open(tmp_path / "log", ChangeLogSettings()) as writer:
        synced(writer, window(9))
        assert scns(decoded(bytes_from(reader, 0))) == list(range(1, 10))
    assert reader.life == lives[-1], "another writer of the same log changes nothing"


def test_who_looks_at_a_damaged_tail_again_and_again_is_told_at_once_and_of_its_repair(tmp_path):
    now = [0.0]
    reader = StretchReader(tmp_path, lambda: now[0])
    with ChangeLogWriter.open(tmp_path, SMALL) as writer:
        synced(writer, window(1))
    good = (tmp_path / "tail").read_bytes()
    bad = bytearray(good)
    bad[20] ^= 1
    bad[2068] ^= 1
    (tmp_path / "tail").write_bytes(bad)
    with pytest.raises(CorruptSegment, match="tail"):
        reader.look()
    begun = time.monotonic()
    for _ in range(50):
        with pytest.raises(CorruptSegment, match="tail"):
            reader.look()
    # A look at the damage itself would take a second, each.
    assert time.monotonic() - begun < 5
    (tmp_path / "tail").write_bytes(good)
    now[0] = 60.0
    assert reader.look()
    assert reader.tail.complete_scn == 1


@req("B-11")
def test_who_waited_at_an_empty_log_is_told_when_it_begins_further_on(writer, reader):
    spot = found(reader, 0)
    writer.begin_at(50, commit_us(50))
    synced(writer, window(51))
    reader.look()
    with pytest.raises(ScnNotFound) as refused:
        reader.after(spot, 1 << 20)
    assert (refused.value.scn, refused.value.oldest) == (0, 50)
    assert scns(decoded(bytes_from(reader, 50))) == [51]


def test_of_a_time_before_the_beginning_of_a_log_nothing_is_promised(writer, reader):
    writer.begin_at(50, commit_us(51) - 1)
    synced(writer, window(51), window(60))
    reader.look()
    with pytest.raises(ScnNotFound):
        reader.since(commit_us(51) - 1)
    assert reader.since(commit_us(51)) == 50
    assert reader.since(commit_us(52)) == 59
