"""Block bytes: golden files, the header by hand, round trips, and no damaged byte ever accepted."""

from __future__ import annotations

import random
import struct
import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import ProtocolError
from headrace.model.block import Block, Body, SystemEvent, SystemKind, transaction_index
from headrace.model.change import META, change_schema
from headrace.testing.notation import change_batch, table_of
from headrace.wire import (
    body,
    decode_block,
    decode_merged,
    encode_block,
    join_indexes,
    read_directory,
    read_header,
    read_index,
)
from headrace.wire.block import BlockFrame
from headrace.wire.body import BodyEntry, checked_stream, encode_stream
from tests.requirements import req
from tests.wire.examples import EXAMPLES, NOTES, ORDERS, TYPES, golden, open_piece, orders


def assert_same(left: Block, right: Block) -> None:
    assert left.index.tobytes() == right.index.tobytes()
    assert left.system == right.system
    assert left.covered_scn == right.covered_scn
    assert [(b.schema_id, b.table) for b in left.bodies] == [
        (b.schema_id, b.table) for b in right.bodies
    ]
    for one, other in zip(left.bodies, right.bodies, strict=True):
        assert one.batch.schema.equals(other.batch.schema, check_metadata=True)
        assert one.batch.equals(other.batch)


@req("P26")
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_fixed_block_has_exactly_the_golden_bytes(name):
    assert encode_block(EXAMPLES[name]()) == golden(name)


@req("P26", "D40", "N10")
@pytest.mark.parametrize("name", EXAMPLES)
def test_golden_bytes_give_the_fixed_block_without_a_registry(name):
    assert_same(decode_block(golden(name)), EXAMPLES[name]())


def test_the_header_lies_where_the_specification_says():
    data = golden("orders")
    magic, version, flags, length = struct.unpack_from("<4sHHQ", data, 0)
    assert (magic, version, flags, length) == (b"HRBK", 1, 1, len(data))
    head_length, bodies, transactions, head_crc = struct.unpack_from("<IIII", data, 16)
    assert (bodies, transactions) == (3, 3)
    assert head_length == 384  # 128 + 3 * 40 + 3 * 32 = 344, filled up to 64
    assert head_crc == zlib.crc32(data[128:head_length])
    first, last, complete, covered, commit_us = struct.unpack_from("<qqqqq", data, 32)
    assert (first, last, complete, covered) == (100, 102, 102, 109)
    assert commit_us == 1_700_000_000_000_001
    assert struct.unpack_from("<Q", data, 72) == (6,)
    assert data[80:124] == bytes(44)
    assert struct.unpack_from("<I", data, 124) == (zlib.crc32(data[:124]),)


def test_the_directory_and_the_index_lie_where_the_specification_says():
    data = golden("orders")
    expected_offset = 384
    for place, (schema_id, rows) in enumerate(
        [(ORDERS.schema_id, 5), (NOTES.schema_id, 1), (0, 1)]
    ):
        entry = struct.unpack_from("<QQQQII", data, 128 + 40 * place)
        offset, length = entry[1:3]
        assert entry == (
            schema_id,
            expected_offset,
            length,
            rows,
            zlib.crc32(data[offset : offset + length]),
            0,
        )
        assert length % 64 == 0
        with pa.ipc.open_stream(data[offset : offset + length]) as stream:
            assert stream.read_next_batch().num_rows == rows
        expected_offset += length
    assert expected_offset == len(data)
    entries = [struct.unpack_from("<qqqiBBH", data, 248 + 32 * i) for i in range(3)]
    assert [(e[0], e[2], e[3], e[4], e[5], e[6]) for e in entries] == [
        (100, 7001, 2, 0, 1, 0),
        (101, 7003, 3, 0, 1, 0),
        (102, 7002, 2, 0, 1, 0),
    ]


def test_an_open_transaction_shows_in_flags_and_positions():
    header = read_header(golden("open_piece"))
    assert not header.ends_complete
    assert (header.first_scn, header.complete_scn, header.covered_scn) == (300, 0, 299)
    assert header.last_commit_us == 0


def test_a_block_without_transactions_stands_at_its_covered_scn():
    header = read_header(golden("coverage"))
    assert (header.transactions, header.first_scn, header.last_scn) == (0, 500, 500)
    assert header.ends_complete
    assert len(golden("coverage")) == 128


def test_bodies_and_index_are_views_into_the_buffer():
    data = bytearray(encode_block(open_piece()))
    start = np.frombuffer(data, np.uint8).ctypes.data
    block = decode_block(data)
    for buffer in block.bodies[0].batch.column("k").buffers():
        if buffer is not None:
            assert start <= buffer.address < start + len(data)
    assert start <= block.index.ctypes.data < start + len(data)
    assert not block.index.flags.writeable


def test_only_the_tables_asked_for_are_decoded_and_the_system_events_always_come():
    data = bytearray(golden("orders"))
    entry = read_directory(data, read_header(data))[0]
    data[entry.offset + 100] ^= 1
    block = decode_block(data, schema_ids={NOTES.schema_id})
    assert [body.table for body in block.bodies] == [NOTES.table]
    assert [event.kind for event in block.system] == [SystemKind.TRUNCATE]
    assert len(block.index) == 3
    with pytest.raises(ProtocolError, match=f"{ORDERS.schema_id:016x} fails its checksum"):
        decode_block(data, schema_ids={ORDERS.schema_id})


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "among others"])
def test_checksums_that_were_computed_before_decide_as_well(others):
    data = memoryview(golden("orders"))
    header = read_header(data)
    entries = read_directory(data, header)
    crcs = [zlib.crc32(data[at.offset : at.offset + at.length]) for at in entries]
    frames = [BlockFrame(header, data)] * others
    assert decode_merged([*frames, BlockFrame(header, data, crcs)])
    for number in range(len(crcs)):
        wrong = [crc ^ (place == number) for place, crc in enumerate(crcs)]
        with pytest.raises(ProtocolError, match="fails its checksum"):
            decode_merged([*frames, BlockFrame(header, data, wrong)])
    # No body goes unread because nobody summed it.
    with pytest.raises(ValueError, match="shorter"):
        decode_merged([*frames, BlockFrame(header, data, crcs[:-1])])


def test_names_with_dots_and_spaces_come_back():
    assert decode_block(golden("orders")).bodies[1].table == NOTES.table
    assert decode_block(golden("every_type")).bodies[0].table == TYPES.table


@req("B-12", "D64")
@pytest.mark.parametrize("bit", [0, 7])
@pytest.mark.parametrize("name", EXAMPLES)
def test_any_flipped_bit_is_refused(name, bit):
    data = bytearray(golden(name))
    for place in range(len(data)):
        data[place] ^= 1 << bit
        with pytest.raises(ProtocolError):
            decode_block(data)
        data[place] ^= 1 << bit
    decode_block(data)


@req("B-12", "D64")
@pytest.mark.parametrize("size", [5119, 5120, 5121, 20_000, 65_536, 70_000])
def test_a_body_of_any_size_is_checked_to_its_last_byte(size):
    """A small one in pieces, each without letting the interpreter's lock go."""
    stream = bytearray(random.Random(size).randbytes(size))
    entry = BodyEntry(1, 0, size, 1, zlib.crc32(stream))
    assert checked_stream(memoryview(stream), entry) == stream
    for place in {0, size // 2, 5120 % size, size - 1}:
        stream[place] ^= 1
        with pytest.raises(ProtocolError):
            checked_stream(memoryview(stream), entry)
        stream[place] ^= 1


@req("B-12")
def test_any_shorter_or_longer_block_is_refused():
    data = golden("orders")
    for length in range(len(data)):
        with pytest.raises(ProtocolError):
            decode_block(data[:length])
    with pytest.raises(ProtocolError):
        decode_block(data + bytes(64))


def reseal(data: bytearray) -> None:
    """Give a doctored header a checksum that holds."""
    struct.pack_into("<I", data, 124, zlib.crc32(data[:124]))


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (4, struct.pack("<H", 2), "version 2"),
        (6, struct.pack("<H", 3), "reserved bits"),
        (100, b"\1", "reserved bits"),
        (16, struct.pack("<I", 320), "lengths contradict"),
        (24, struct.pack("<I", 9), "lengths contradict"),
        (8, struct.pack("<Q", 64 * 1000), "bytes given"),
    ],
)
def test_a_header_that_lies_is_refused_although_its_checksum_holds(place, value, words):
    data = bytearray(golden("orders"))
    data[place : place + len(value)] = value
    reseal(data)
    with pytest.raises(ProtocolError, match=words):
        decode_block(data)


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [(8, 448, "gap"), (16, 64, "gap"), (24, 4, "has 5 rows"), (36, 1, "gap")],
)
def test_a_directory_that_lies_is_refused_although_its_checksum_holds(at, value, words):
    data = bytearray(golden("orders"))
    struct.pack_into("<I", data, 128 + at, value)
    struct.pack_into("<I", data, 28, zlib.crc32(data[128:384]))
    reseal(data)
    with pytest.raises(ProtocolError, match=words):
        decode_block(data)


def test_a_body_that_is_no_arrow_stream_is_refused_although_its_checksum_holds():
    data = bytearray(golden("open_piece"))
    header = read_header(data)
    entry = read_directory(data, header)[0]
    data[entry.offset : entry.offset + entry.length] = b"x" * entry.length
    crc = zlib.crc32(data[entry.offset : entry.offset + entry.length])
    struct.pack_into("<I", data, 128 + 32, crc)
    struct.pack_into("<I", data, 28, zlib.crc32(data[128 : header.head_length]))
    reseal(data)
    with pytest.raises(ProtocolError, match="no Arrow stream"):
        decode_block(data)


def test_errors_carry_no_bytes_of_the_block():
    data = bytearray(golden("orders"))
    data[-70] ^= 1
    with pytest.raises(ProtocolError) as caught:
        decode_block(data)
    assert caught.value.next_step
    assert "line" not in str(caught.value)


def test_header_and_index_are_read_at_an_offset_of_a_larger_buffer():
    data = b"x" * 640 + golden("orders") + golden("coverage")
    header = read_header(data, 640)
    assert join_indexes([read_index(data, header, 640)])["scn"].tolist() == [100, 101, 102]
    assert read_header(data, 640 + header.length).covered_scn == 500
    assert [entry.rows for entry in read_directory(data, header, 640)] == [5, 1, 1]


def test_a_slice_of_a_batch_is_stored_without_the_rest():
    rows = [(5, i, "+I", (i, "x" * 100, "y")) for i in range(1000)]
    batch = change_batch(ORDERS, rows).slice(990, 10)
    index = transaction_index([(5, 0, 0, 10, 0, 1)])
    data = encode_block(Block(index, (Body(ORDERS.schema_id, ORDERS.table, batch),), (), 5))
    assert len(data) < 5000
    assert decode_block(data).bodies[0].batch.equals(batch)


cells = st.one_of(st.none(), st.text(max_size=20))
column_counts = st.integers(1, 4)


LARGE = pa.record_batch(
    {
        "a": np.arange(200_000),
        "b": pa.array([f"{i}" for i in range(200_000)]),
        "c": pa.nulls(200_000, pa.binary()),
        "d": pa.array([None, True] * 100_000),
        "e": pa.array([[i, None] for i in range(200_000)]),
    }
)


@req("P26")
@pytest.mark.parametrize("rows", [LARGE, LARGE.slice(3, 199_990), LARGE.slice(1, 0)])
def test_a_large_body_has_the_bytes_of_a_copied_one(rows, monkeypatch):
    table = table_of(1).table
    pieces = encode_stream(rows, table)
    monkeypatch.setattr(body, "_COPIED", 1 << 40)
    assert b"".join(pieces) == b"".join(encode_stream(rows, table))


def test_the_columns_of_a_large_body_are_not_copied():
    pieces = encode_stream(LARGE, None)
    column = LARGE.column("a").buffers()[1]
    assert column.address in {p.address for p in pieces if isinstance(p, pa.Buffer)}


@pytest.mark.parametrize(("rows", "in_arrows"), [(10, False), (200_000, True)])
def test_a_little_is_joined_beside_arrows_own_memory(rows, in_arrows):
    part = Body(1, table_of(1).table, pa.record_batch({"a": np.arange(rows)}))
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    both = body.joined([part, part])
    assert both.batch.num_rows == 2 * rows
    assert (pool.bytes_allocated() > before) is in_arrows


@st.composite
def blocks(draw) -> Block:
    """Any block: some tables, some rows, some system events, sometimes a piece."""
    scns = sorted(draw(st.sets(st.integers(1, 2**62), max_size=6)))
    bodies = []
    for name in draw(st.sets(st.text(min_size=1, max_size=8), max_size=3)):
        schema = table_of(draw(column_counts), name=name)
        texts = st.lists(cells, min_size=len(schema.columns) - 1, max_size=len(schema.columns) - 1)
        rows = [
            (scn, n, "+I", (draw(st.integers(-(2**63), 2**63 - 1)), *draw(texts)))
            for n, scn in enumerate(scns)
        ]
        bodies.append(Body(schema.schema_id, schema.table, change_batch(schema, rows)))
    events = tuple(
        SystemEvent(scn, 9, SystemKind.SCHEMA, ORDERS.table, {"schema_id": draw(st.integers(0, 9))})
        for scn in scns
        if draw(st.booleans())
    )
    last = draw(st.integers(0, 1))
    entries = [(scn, 5, 6, 1, 0, 1) for scn in scns[:-1]] + [
        (s, 5, 6, 1, 1, last) for s in scns[-1:]
    ]
    return Block(transaction_index(entries), tuple(bodies), events, draw(st.integers(0, 2**62)))


@req("P26")
@settings(max_examples=60)
@given(blocks())
def test_any_block_comes_back_as_it_was(block):
    data = encode_block(block)
    assert len(data) % 64 == 0
    again = decode_block(data)
    assert_same(again, block)
    assert encode_block(again) == data
    header = read_header(data)
    assert header.rows == block.rows
    assert header.ends_complete == block.ends_complete
    assert (header.first_scn, header.last_scn) == (block.first_scn, block.last_scn)


@req("B-12", "D64")
@settings(max_examples=60)
@given(st.data())
def test_any_damage_is_refused_or_harmless(data):
    stored = bytearray(golden(data.draw(st.sampled_from(list(EXAMPLES)))))
    start = data.draw(st.integers(0, len(stored) - 1))
    junk = data.draw(st.binary(min_size=1, max_size=200))[: len(stored) - start]
    before = bytes(stored)
    stored[start : start + len(junk)] = junk
    if stored != before:
        with pytest.raises(ProtocolError):
            decode_block(stored)


def test_meta_columns_stay_in_front():
    batch = decode_block(golden("every_type")).bodies[0].batch
    assert tuple(batch.schema.names[:4]) == META
    assert batch.schema.equals(change_schema(TYPES), check_metadata=True)


@pytest.mark.parametrize("scn", range(98, 105))
def test_the_two_parts_of_a_cut_are_the_block(scn):
    block = orders()
    low, high = block.upto(scn), block.after(scn)
    assert np.concatenate([low.index, high.index]).tolist() == block.index.tolist()
    assert low.system + high.system == block.system
    assert low.rows + high.rows == block.rows
    assert all(body.batch.column("_scn").to_numpy().max() <= scn for body in low.bodies)
    assert low.covered_scn == min(scn, 109)
