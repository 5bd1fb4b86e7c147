"""A filter of tables alone over stored blocks: the same as over decoded ones, with the bytes of bodies as they are."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from headrace.errors import ProtocolError
from headrace.model.block import (
    ORIGIN_LOG,
    SYSTEM_SCHEMA_ID,
    Block,
    Body,
    SystemEvent,
    SystemKind,
    transaction_index,
)
from headrace.model.schema import TableSchema
from headrace.testing.histories import TABLES
from headrace.testing.notation import parse_history
from headrace.wire import decode_block, encode_block
from headrace.wire.block import read_directory, read_header
from headrace.wire.filters import BoundFilter, parse_filter
from headrace.wire.filters.stored import is_whole, left_of
from tests.client.logs import random_blocks
from tests.requirements import req
from tests.wire.examples import EXAMPLES, NOTES, ORDERS, TYPES, orders

SCHEMAS = {schema.schema_id: schema for schema in (ORDERS, NOTES, TYPES, *TABLES)}
PATTERNS = [
    [str(schema.table) for schema in chosen]
    for count in (1, 2, 3)
    for chosen in combinations(TABLES, count)
] + [["public.*"], ["nobody.*"]]


def bound(*tables: str) -> BoundFilter:
    return parse_filter({"tables": list(tables)}).bound(SCHEMAS.__getitem__)


def same(one: Block, other: Block) -> None:
    """See that two blocks say the same."""
    assert one.index.tobytes() == other.index.tobytes()
    assert one.system == other.system
    assert one.covered_scn == other.covered_scn
    assert [body.schema_id for body in one.bodies] == [body.schema_id for body in other.bodies]
    for mine, theirs in zip(one.bodies, other.bodies, strict=True):
        assert mine.table == theirs.table
        assert mine.batch.equals(theirs.batch)


@req("D60", "D63", "D65")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tables", PATTERNS, ids=" ".join)
def test_what_is_left_is_what_a_filter_leaves_of_the_decoded_block(
    seed: int, tables: list[str]
) -> None:
    whole = part = bare = 0
    for block in random_blocks(seed):
        data = memoryview(encode_block(block))
        filter_ = bound(*tables)
        expected = filter_.apply(decode_block(data))
        found = left_of(filter_, data, read_header(data))
        same(decode_block(found.data), expected)
        assert found.bare == (not len(expected.index))
        if is_whole(filter_, data, read_header(data)):
            assert found.data is data
            whole += 1
        part += found.data is not data and not found.bare
        bare += found.bare
    if tables == ["public.*"] or len(tables) == len(TABLES):
        assert whole
        assert not part
    elif tables == ["nobody.*"]:
        assert bare > 10
    else:
        assert part


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_left_alike(name: str) -> None:
    data = memoryview(encode_block(EXAMPLES[name]()))
    for table in ("public.orders", "*.notes*", "shop.*", "*"):
        found = left_of(bound(table), data, read_header(data))
        same(decode_block(found.data), bound(table).apply(decode_block(data)))


@req("D60")
def test_bodies_that_are_wanted_go_on_byte_by_byte() -> None:
    data = memoryview(encode_block(orders()))
    left = left_of(bound("public.orders"), data, read_header(data)).data
    (entry, *_) = read_directory(data, read_header(data))
    (mine,) = read_directory(left, read_header(left))
    assert mine._replace(offset=0) == entry._replace(offset=0)
    body = data[entry.offset : entry.offset + entry.length]
    assert memoryview(left)[mine.offset :] == body


@req("D60")
def test_rows_of_tables_that_are_not_wanted_are_not_looked_at() -> None:
    damaged = bytearray(encode_block(orders()))
    entries = read_directory(damaged, read_header(damaged))
    # Only the row that tells whether the first transaction is here from its beginning is one of a table's.
    for entry in entries:
        if entry.schema_id == NOTES.schema_id:
            damaged[entry.offset + entry.length - 1] ^= 0xFF
    data = memoryview(bytes(damaged))
    with pytest.raises(ProtocolError):
        decode_block(data)
    left = decode_block(left_of(bound("public.orders"), data, read_header(data)).data)
    same(left, bound("public.orders").apply(orders()))
    with pytest.raises(ProtocolError):
        left_of(bound("*.notes*"), data, read_header(data))


def batch_of(schema: TableSchema, history: str, scn: int, start: int, stop: int | None) -> Any:
    return parse_history(history, scn=scn).batch(schema, start, stop)


@req("D63")
@pytest.mark.parametrize("begun_before", [False, True])
def test_the_last_piece_of_a_transaction_stays_though_nothing_of_it_is_wanted(
    begun_before: bool,
) -> None:
    history = "+I(1,a,b) +I(2,a,b) +I(3,a,b)"
    rows = batch_of(ORDERS, history, 300, 1 if begun_before else 0, 3)
    body = Body(ORDERS.schema_id, ORDERS.table, rows)
    index = transaction_index([(300, 1, 7, rows.num_rows, ORIGIN_LOG, 1)])
    data = memoryview(encode_block(Block(index, (body,), (), 300)))
    found = left_of(bound("other.*"), data, read_header(data))
    left = decode_block(found.data)
    assert left.index["scn"].tolist() == ([300] if begun_before else [])
    assert not left.bodies
    assert found.bare != begun_before


def test_two_bodies_of_one_version_become_one() -> None:
    first, then = (batch_of(ORDERS, "+I(1,a,b) | +I(2,c,d)", 5, n, n + 1) for n in range(2))
    note = SystemEvent(6, 1, SystemKind.TRUNCATE, NOTES.table)
    bodies = tuple(Body(ORDERS.schema_id, ORDERS.table, rows) for rows in (first, then))
    index = transaction_index([(5, 1, 7, 1, ORIGIN_LOG, 1), (6, 1, 7, 2, ORIGIN_LOG, 1)])
    data = memoryview(encode_block(Block(index, bodies, (note,), 6)))
    ids = [entry.schema_id for entry in read_directory(data, read_header(data))]
    assert ids == [ORDERS.schema_id, ORDERS.schema_id, SYSTEM_SCHEMA_ID]
    left = decode_block(left_of(bound("public.orders"), data, read_header(data)).data)
    same(left, bound("public.orders").apply(decode_block(data)))
    assert np.array_equal(left.index["changes"], [1, 1])
