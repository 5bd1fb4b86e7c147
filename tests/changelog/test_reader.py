"""Reading the log: exact suffixes of whole windows, or a named refusal."""

from __future__ import annotations

import itertools
import mmap
import os
import pickle
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.changelog import ChangeLogReader, ChangeLogWriter, Tail
from headrace.changelog.refs import block_ref
from headrace.errors import ScnNotFound
from headrace.wire.block import read_index
from tests.changelog.played import SMALL, STEPS, last_scn, played
from tests.changelog.windows import OTHER, TABLE, coverage, joined, scns, seen, synced, window
from tests.requirements import req


@pytest.fixture
def writer(tmp_path):
    with ChangeLogWriter.open(tmp_path / "log", SMALL) as log:
        yield log


@pytest.fixture
def reader(tmp_path):
    return ChangeLogReader(tmp_path / "log")


def test_a_log_that_does_not_exist_yet_is_empty(reader):
    assert reader.tail() == Tail(0, 0, 0, 0)
    assert list(reader.blocks(0)) == []
    assert list(reader.refs(0)) == []
    assert len(reader.index(0)) == 0
    with pytest.raises(ScnNotFound):
        list(reader.blocks(1))


@req("D42")
def test_everything_after_a_position_comes_once_and_in_order(writer, reader):
    synced(writer, *(window(scn) for scn in range(10, 40)))
    for after in (*range(12), 25, 38, 39):
        assert scns(reader.blocks(after)) == [s for s in range(10, 40) if s > after]
    assert scns(reader.blocks(12, 15)) == [13, 14, 15]
    assert scns(reader.blocks(12, 1000)) == list(range(13, 40))
    assert list(reader.blocks(39)) == []


@req("C60")
def test_a_segment_may_be_cut_to_its_length_while_a_reader_opens_it(writer, reader, monkeypatch):
    synced(writer, window(10), window(11))
    path, length = writer.durable
    kept = path.stat().st_size
    assert kept > length

    class CutBefore(mmap.mmap):
        def __new__(cls, descriptor, *rest, **options):
            if os.fstat(descriptor).st_size == kept:
                os.truncate(path, length)
            return super().__new__(cls, descriptor, *rest, **options)

    monkeypatch.setattr(mmap, "mmap", CutBefore)
    assert scns(reader.blocks(0)) == [10, 11]
    assert path.stat().st_size == length


def test_a_reader_sees_new_blocks_and_segments_without_reopening(writer, reader):
    position = 0
    for scn in range(1, 60):
        synced(writer, window(scn))
        assert scns(reader.blocks(position)) == [scn]
        assert reader.tail().complete_scn == scn
        position = scn
    assert len(list(writer.durable[0].parent.glob("*.seg"))) > 3


def test_what_was_not_synced_is_not_seen(writer, reader):
    synced(writer, window(1))
    writer.append(window(2))
    assert scns(reader.blocks(0)) == [1]
    assert reader.tail() == writer.tail
    assert writer.appended.complete_scn == 2
    writer.sync()
    assert scns(reader.blocks(0)) == [1, 2]


def test_a_cut_block_covers_no_more_than_was_asked_for(writer, reader):
    synced(writer, joined(window(scn) for scn in (5, 6, 7, 8)), coverage(50))
    (block,) = reader.blocks(5, 7)
    assert scns([block]) == [6, 7]
    assert block.covered_scn == 7
    assert seen([block]) == [(s, o, "public.t") for s in (6, 7) for o in (0, 1)]
    assert [b.covered_scn for b in reader.blocks(5)] == [50]
    assert [b.covered_scn for b in reader.blocks(8)] == [50]
    assert list(reader.blocks(50)) == []


@req("D41", "B-1")
def test_a_transaction_over_many_blocks_comes_whole_or_not_at_all(writer, reader):
    synced(writer, window(1), window(2, 20, last=False))
    synced(writer, window(2, 20, first=20, last=False), window(2, 20, first=40, last=False))
    assert scns(reader.blocks(0)) == [1]
    assert [ref.last_scn for ref in reader.refs(0)] == [1]
    assert reader.index(0)["scn"].tolist() == [1]
    assert reader.tail().complete_scn == 1
    synced(writer, window(2, 20, first=60), window(3))
    assert [row[1] for row in seen(reader.blocks(1, 2))] == list(range(80))
    assert scns(reader.blocks(2)) == [3]
    assert len({ref.segment for ref in reader.refs(1, 2)}) > 1


def test_a_block_with_whole_transactions_and_a_piece_gives_the_whole_ones_at_once(writer, reader):
    synced(writer, joined([window(1), window(2), window(3, last=False)]))
    assert scns(reader.blocks(0)) == [1, 2]
    assert reader.tail().complete_scn == 2
    synced(writer, joined([window(3, first=2), window(4)]))
    assert seen(reader.blocks(2)) == [(3, o, "public.t") for o in range(4)] + [
        (4, 0, "public.t"),
        (4, 1, "public.t"),
    ]


def test_only_the_tables_asked_for_are_decoded(writer, reader):
    synced(writer, window(1, tables=(TABLE, OTHER), truncate=True))
    (block,) = reader.blocks(0, schema_ids={OTHER.schema_id})
    assert [body.table for body in block.bodies] == [OTHER.table]
    assert len(block.system) == 1


def test_refs_say_what_the_blocks_hold_and_load_them_elsewhere(writer, reader, tmp_path):
    synced(writer, window(1), coverage(2), window(3, 7, tables=(TABLE, OTHER), truncate=True))
    first, second = pickle.loads(pickle.dumps(list(reader.refs(0))))
    assert (first.first_scn, first.last_scn, first.rows, first.has_system) == (1, 1, 2, False)
    assert second.tables == ((TABLE.schema_id, 7), (OTHER.schema_id, 7), (0, 1))
    assert (second.rows, second.has_system, second.ends_complete) == (14, True, True)
    elsewhere = ChangeLogReader(tmp_path / "log")
    assert seen([elsewhere.load(second)]) == seen(reader.blocks(1))
    assert [r.last_scn for r in reader.refs(1)] == [3]
    assert [r.last_scn for r in reader.refs(0, 2)] == [1]


def test_the_index_has_one_entry_per_transaction(writer, reader):
    synced(writer, joined([window(1), window(2), window(3, last=False)]), window(3, 5, first=2))
    index = reader.index(1)
    assert index["scn"].tolist() == [2, 3]
    assert index["changes"].tolist() == [2, 7]
    assert index["xid"].tolist() == [5002, 5003]
    assert index["last_piece"].tolist() == [1, 1]
    assert index.dtype == np.asarray(window(1).index).dtype


def test_who_takes_few_blocks_of_a_long_log_pays_for_few(writer, reader, monkeypatch):
    synced(writer, *(window(scn) for scn in range(1, 60)))
    looked_at: list[int] = []

    def looked(*found: Any) -> Any:
        looked_at.append(found[-1].first_scn)
        return block_ref(*found)

    monkeypatch.setattr("headrace.changelog.reader.block_ref", looked)
    taken = itertools.islice(reader.refs(10), 2)
    assert looked_at == []
    assert [ref.last_scn for ref in taken] == looked_at == [11, 12]


def test_nothing_behind_the_end_of_a_range_is_read_for_its_index(writer, reader, monkeypatch):
    synced(writer, *(window(scn) for scn in range(1, 60)))
    read: list[int] = []

    def noted(view: Any, header: Any, offset: int) -> Any:
        read.append(header.first_scn)
        return read_index(view, header, offset)

    monkeypatch.setattr("headrace.changelog.reader.read_index", noted)
    assert reader.index(10, 12)["scn"].tolist() == read == [11, 12]
    assert reader.index(57, 1_000)["scn"].tolist() == [58, 59]


@req("D59")
def test_a_position_that_was_dropped_or_never_was_is_refused_with_what_there_is(writer, reader):
    for scn in range(1, 60):
        synced(writer, window(scn))
    assert writer.retain() > 0
    oldest = reader.tail().oldest_scn
    assert 0 < oldest < 59
    for position in (0, oldest - 1, 60):
        for ask in (reader.refs, reader.index, lambda scn: list(reader.blocks(scn))):
            with pytest.raises(ScnNotFound) as caught:
                ask(position)
            assert (caught.value.scn, caught.value.oldest, caught.value.newest) == (
                position,
                oldest,
                59,
            )
    assert scns(reader.blocks(oldest)) == list(range(oldest + 1, 60))


def test_a_block_that_was_dropped_while_a_plan_held_its_ref_is_a_named_error(writer, tmp_path):
    for scn in range(1, 60):
        synced(writer, window(scn))
    planned = next(ChangeLogReader(tmp_path / "log").refs(0))
    writer.retain()
    with pytest.raises(ScnNotFound):
        ChangeLogReader(tmp_path / "log").load(planned)


def test_rows_stay_readable_after_their_segment_is_gone(writer, reader, tmp_path):
    for scn in range(1, 60):
        synced(writer, window(scn, text="kept"))
    block = next(reader.blocks(0))
    writer.retain()
    assert reader.tail().oldest_scn > 1
    assert list(reader.blocks(reader.tail().oldest_scn))
    assert block.bodies[0].batch.column("c1").to_pylist() == ["kept"] * (2 * 59)


def test_wait_returns_when_the_tail_has_passed(writer, reader):
    synced(writer, window(1))
    assert reader.wait(1, 0)
    assert not reader.wait(2, 0.001)
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(reader.wait(7, 30)))
    waiting.start()
    synced(writer, window(2), coverage(7))
    waiting.join(30)
    assert answers == [True]


@req("B-1", "D42")
@settings(max_examples=40)
@given(STEPS, st.data())
def test_any_position_gives_a_whole_suffix_or_is_refused(history, data):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        early = ChangeLogReader(folder)
        with played(folder, history) as blocks:
            truth, last = seen(blocks), last_scn(blocks)
            for reader in (early, ChangeLogReader(folder)):
                check_every_position(reader, truth, last)
                after = data.draw(st.integers(reader.tail().oldest_scn, last))
                upto = data.draw(st.integers(0, last + 3))
                wanted = [row for row in truth if after < row[0] <= upto]
                assert seen(reader.blocks(after, upto)) == wanted
                assert seen(
                    reader.load(ref).after(after).upto(upto) for ref in reader.refs(after, upto)
                ) == (wanted)
                held = reader.index(after, upto)["scn"].tolist()
                assert held == sorted({row[0] for row in wanted})


def check_every_position(reader: ChangeLogReader, truth: list, last: int) -> None:
    tail = reader.tail()
    for position in range(last + 3):
        if tail.oldest_scn <= position <= tail.covered_scn:
            rest = [row for row in truth if row[0] > position]
            assert seen(reader.blocks(position)) == rest
            wholes = reader.index(position)
            assert wholes["scn"].tolist() == sorted({row[0] for row in rest})
            assert wholes["changes"].sum() == len(rest)
        else:
            with pytest.raises(ScnNotFound):
                list(reader.blocks(position))
