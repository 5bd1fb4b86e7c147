"""Small neighbours are read as one: the same rows, order and positions, for a price per row and not per block."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.changelog import ChangeLogReader, ChangeLogSettings, ChangeLogWriter, merging
from headrace.errors import CorruptSegment
from headrace.model.block import SYSTEM_SCHEMA_ID, Block
from headrace.registry.file import FileRegistry
from headrace.replicator.verify_tail import LogView, fold_tail
from headrace.spark.rows import change_batches
from headrace.spark.slices import cut
from tests.changelog.played import STEPS, played
from tests.changelog.windows import OTHER, TABLE, joined, scns, seen, synced, window
from tests.requirements import req

CALLS_PER_BLOCK = 55
"""Calls of Python and C functions, `len` and the like included, that a small block may cost a reader. To read each
alone takes 64 and an Arrow stream before anything is done with its rows."""
ALL = {TABLE.schema_id, OTHER.schema_id}


def contents(blocks: Iterable[Block]) -> tuple[bytes, list[Any], dict[int, list[Any]]]:
    """Return everything that blocks say, in the order in which they say it: index, events, rows per version."""
    index, system, rows = b"", list[Any](), dict[int, list[Any]]()
    for block in blocks:
        index += block.index.tobytes()
        system += block.system
        assert len({body.schema_id for body in block.bodies}) == len(block.bodies)
        for body in block.bodies:
            assert body.table == (TABLE if body.schema_id == TABLE.schema_id else OTHER).table
            rows.setdefault(body.schema_id, []).extend(body.batch.to_pylist())
    return index, system, rows


def between(
    written: Iterable[Block], after: int, upto: int, ids: set[int]
) -> tuple[bytes, list[Any], dict[int, list[Any]]]:
    """Return what a range holds, by the blocks as they were given to the writer."""
    chosen = (
        replace(block, bodies=tuple(body for body in block.bodies if body.schema_id in ids))
        for block in written
    )
    return contents(part for block in chosen if len((part := block.after(after).upto(upto)).index))


@settings(max_examples=40)
@given(STEPS, st.data())
def test_joined_or_not_the_rows_their_order_and_the_positions_are_the_same(history, data):
    with tempfile.TemporaryDirectory() as name:
        with played(Path(name), [step for step in history if step[0] != "retain"]) as written:
            pass
        reader = ChangeLogReader(Path(name))
        covered = reader.tail().covered_scn
        ids = data.draw(st.sampled_from([ALL, {OTHER.schema_id}, set()]))
        cuts = sorted(data.draw(st.sets(st.integers(1, covered + 2), max_size=4)))
        rows, size = data.draw(st.integers(1, 60)), data.draw(st.integers(64, 60_000))
        begin = 0
        with (
            mock.patch.object(merging, "MERGED_ROWS", rows),
            mock.patch.object(merging, "MERGED_BYTES", size),
        ):
            for end in [*(cut for cut in cuts if cut <= covered), covered]:
                wanted = between(written, begin, end, ids)
                blocks = list(reader.blocks(begin, end, ids))
                assert contents(blocks) == wanted
                assert (
                    contents(
                        part
                        for block in reader.read(reader.refs(begin, end), ids)
                        if len((part := block.after(begin).upto(end)).index)
                    )
                    == wanted
                )
                told = [block.covered_scn for block in blocks]
                assert told == sorted(told)
                assert not told or begin < told[-1] <= end
                # Where a caller stops between two blocks, it goes on without a gap.
                for block in blocks[:-1]:
                    if block.ends_complete:
                        rest = contents(reader.blocks(block.last_scn, end, ids))
                        assert rest == between(written, block.last_scn, end, ids)
                begin = end


def test_small_neighbours_are_one_block_and_pieces_stay_alone(tmp_path):
    with ChangeLogWriter.open(tmp_path) as writer:
        synced(writer, *(window(scn, tables=(TABLE, OTHER)) for scn in range(1, 50)))
        synced(writer, window(50, last=False), window(50, first=2, last=False))
        synced(writer, window(50, first=4), window(51), window(52))
    blocks = list(ChangeLogReader(tmp_path).blocks(0))
    assert [scns([block]) for block in blocks] == [list(range(1, 50)), [50], [50], [50, 51, 52]]
    assert [block.ends_complete for block in blocks] == [True, False, False, True]
    assert [block.covered_scn for block in blocks] == [49, 49, 49, 52]


def test_what_is_joined_stays_within_rows_and_bytes(tmp_path, monkeypatch):
    with ChangeLogWriter.open(tmp_path) as writer:
        synced(writer, *(window(scn) for scn in range(1, 11)), window(11, 9), window(12))
    reader = ChangeLogReader(tmp_path)
    monkeypatch.setattr(merging, "MERGED_ROWS", 8)
    assert [len(block.index) for block in reader.blocks(0)] == [4, 4, 2, 1, 1]
    monkeypatch.setattr(merging, "MERGED_ROWS", 1_000)
    monkeypatch.setattr(merging, "MERGED_BYTES", 3 * next(reader.refs(0)).length)
    assert [len(block.index) for block in reader.blocks(0, 10)] == [3, 3, 3, 1]


@req("B-12", "D64")
def test_damage_among_joined_blocks_is_named_and_what_lies_before_it_comes(tmp_path):
    with ChangeLogWriter.open(tmp_path) as writer:
        synced(writer, *(window(scn) for scn in range(1, 20)))
    reader = ChangeLogReader(tmp_path)
    hit = list(reader.refs(0))[11]
    path = tmp_path / hit.segment
    data = bytearray(path.read_bytes())
    data[hit.offset + hit.length - hit.bytes + 900] ^= 1
    path.write_bytes(data)
    reader = ChangeLogReader(tmp_path)
    for found in (reader.blocks(0), reader.read(reader.refs(0))):
        got: list[Block] = []
        with pytest.raises(CorruptSegment, match=f"{hit.segment} .* byte {hit.offset}:"):
            got.extend(found)
        assert seen(got) == [(scn, i, "public.t") for scn in range(1, 12) for i in range(2)]


def test_bodies_whose_schemas_were_written_differently_are_still_one(tmp_path):
    plain, second = window(1), window(2)
    (body,), (later,) = plain.bodies, second.bodies
    noted = later.batch.replace_schema_metadata({b"made": b"elsewhere"})
    other = replace(second, bodies=(type(later)(later.schema_id, later.table, noted),))
    with ChangeLogWriter.open(tmp_path) as writer:
        synced(writer, plain, other)
    (block,) = ChangeLogReader(tmp_path).blocks(0)
    both = [*body.batch.to_pylist(), *later.batch.to_pylist()]
    assert block.bodies[0].batch.to_pylist() == both
    assert block.bodies[0].batch.schema.equals(body.batch.schema, check_metadata=True)


class Calls:
    """Counts calls of Python and C functions; time says nothing on a busy machine."""

    def __init__(self) -> None:
        self.count = 0
        self.streams = 0

    def __call__(self, frame: FrameType, event: str, _arg: Any) -> None:
        self.count += event in ("call", "c_call")
        self.streams += event == "call" and frame.f_code is pa.ipc.open_stream.__code__

    def __enter__(self) -> Calls:
        sys.setprofile(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


@req("N11")
def test_a_log_of_tiny_blocks_is_read_within_few_calls_a_block(tmp_path, request):
    # 100,000 blocks with --long; the bounds are per block and per joined block either way.
    blocks = 100_000 if request.config.getoption("--long") else 4_000
    settings_ = ChangeLogSettings(segment_bytes=1 << 30)
    with ChangeLogWriter.open(tmp_path, settings_, sync=lambda _descriptor: None) as writer:
        one = joined([window(1, 1)])
        (body,) = one.bodies
        for scn in range(1, blocks + 1):
            index = one.index.copy()
            index["scn"] = scn
            batch = body.batch.set_column(0, body.batch.schema.field(0), pa.array([scn]))
            rows = type(body)(body.schema_id, body.table, batch)
            writer.append(Block(index, (rows,), (), scn))
        writer.sync()
    registry = FileRegistry(tmp_path / "schemas")
    registry.put(TABLE)
    runs = -(-blocks // min(merging.MERGED_ROWS, merging.MERGED_BYTES // 2_048)) + 1

    with Calls() as followed:
        count = sum(1 for _ in ChangeLogReader(tmp_path).blocks(0))
    assert count <= runs
    assert followed.streams <= runs
    assert followed.count <= CALLS_PER_BLOCK * blocks

    refs = list(ChangeLogReader(tmp_path).refs(0))
    (part,) = cut(refs, 0, blocks, 1)
    with Calls() as task:
        reader = ChangeLogReader(tmp_path)
        count = sum(
            1
            for _ in change_batches(
                reader,
                registry,
                TABLE,
                {TABLE.schema_id: dict(zip(TABLE.names, TABLE.names, strict=True))},
                part,
            )
        )
    assert count <= runs
    assert task.streams <= runs
    assert task.count <= CALLS_PER_BLOCK * blocks

    view = LogView(np.arange(1, blocks + 1), None)
    with Calls() as verify:
        reader = ChangeLogReader(tmp_path)
        fold_tail(reader, registry, {TABLE.table: TABLE}, {TABLE.table: 0}, view)
    assert verify.streams <= runs
    assert verify.count <= CALLS_PER_BLOCK * blocks


def test_system_events_alone_are_read_without_the_rows(tmp_path):
    with ChangeLogWriter.open(tmp_path) as writer:
        synced(writer, *(window(scn, truncate=scn % 3 == 0) for scn in range(1, 20)))
    reader = ChangeLogReader(tmp_path)
    refs = [ref for ref in reader.refs(0) if ref.has_system]
    assert all(SYSTEM_SCHEMA_ID in dict(ref.tables) for ref in refs)
    blocks = list(reader.read(refs, ()))
    assert not any(block.bodies for block in blocks)
    assert [event.scn for block in blocks for event in block.system] == [3, 6, 9, 12, 15, 18]
    assert scns(blocks) == [3, 6, 9, 12, 15, 18]


def test_a_shape_that_comes_back_does_not_pull_its_rows_forward(tmp_path):
    shapes = [TABLE, TABLE, OTHER, OTHER, TABLE, TABLE]
    with ChangeLogWriter.open(tmp_path) as writer:
        for scn, shape in enumerate(shapes, start=1):
            # A change of shape is announced by a system event; any will do here.
            changed = scn > 1 and shape is not shapes[scn - 2]
            synced(writer, window(scn, tables=(shape,), truncate=changed))
    bodies = [body for block in ChangeLogReader(tmp_path).blocks(0) for body in block.bodies]
    assert [body.schema_id for body in bodies] == [
        TABLE.schema_id,
        OTHER.schema_id,
        TABLE.schema_id,
    ]
    assert [body.batch.num_rows for body in bodies] == [4, 4, 4]
