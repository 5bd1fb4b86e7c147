"""What is left of a block: its transactions, its coverage, its events and its columns."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import BadFilter
from headrace.fold import fold
from headrace.model.block import (
    ORIGIN_LOG,
    Block,
    Body,
    SystemEvent,
    SystemKind,
    transaction_index,
)
from headrace.model.change import META, change_schema, missing_matrix
from headrace.model.schema import KeyCheck, TableId, TableSchema
from headrace.testing.notation import change_batch, parse_history, table_of
from headrace.wire import decode_block, encode_block
from headrace.wire.filters import BoundFilter, parse_filter
from tests.requirements import req
from tests.wire.examples import EXAMPLES, NOTES, ORDERS, TYPES, orders

SCHEMAS = {schema.schema_id: schema for schema in (ORDERS, NOTES, TYPES)}


def bound(**filter_: Any) -> BoundFilter:
    return parse_filter(filter_).bound(SCHEMAS.__getitem__)


def scns(block: Block) -> list[int]:
    found: list[int] = block.index["scn"].tolist()
    return found


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_filter_that_wants_everything_gives_the_block_itself(name):
    block = EXAMPLES[name]()
    for everything in ({}, {"tables": ["*"]}, {"tables": ["shop.*", "public.*"]}):
        assert bound(**everything).apply(block) is block
    every = bound(partition={"by": "hash", "count": 1, "take": [0]})
    assert every.apply(block) is block


@req("D63", "T17", "B-8", "F10")
@pytest.mark.parametrize(
    "nothing",
    [
        {"tables": ["other.*"]},
        {"where": {"public.orders": "1 = 0", "public.notes.old": "false"}, "tables": ["public.*"]},
        {"partition": {"by": "range", "ranges": [{"from": 1_000}]}, "tables": ["public.orders"]},
    ],
)
def test_a_block_of_which_nothing_is_left_still_covers_what_it_covered(nothing):
    block = orders()
    if "tables" in nothing and nothing["tables"] == ["public.*"]:
        block = Block(block.index, block.bodies, (), block.covered_scn)
    left = bound(**nothing).apply(block)
    assert (scns(left), left.bodies, left.system) == ([], (), ())
    assert left.covered_scn == block.covered_scn == 109
    assert left.last_scn == 109
    assert decode_block(encode_block(left)).covered_scn == 109


@req("D63")
def test_each_piece_of_a_transaction_that_spans_blocks_stays():
    rows = parse_history("+I(1,a,b) +I(2,a,b) +I(3,a,b)", scn=300)
    nothing = bound(where={"public.orders": "false"})
    pieces = [
        piece(rows.batch(ORDERS, at, at + 1), last=at == 2, covered=300 if at == 2 else 299)
        for at in range(3)
    ]
    left = [nothing.apply(one) for one in pieces]
    assert [scns(one) for one in left] == [[300], [300], [300]]
    assert [one.index["last_piece"].tolist() for one in left] == [[0], [0], [1]]
    assert [one.index["changes"].tolist() for one in left] == [[0], [0], [0]]
    assert all(not one.bodies for one in left)
    again = [nothing.apply(one) for one in left]
    assert [scns(one) for one in again] == [[300], [300], [300]], "a filter behind a filter"


def piece(batch: Any, *, last: bool, covered: int) -> Block:
    body = Body(ORDERS.schema_id, ORDERS.table, batch)
    return Block(transaction_index([(300, 1, 7, 1, ORIGIN_LOG, last)]), (body,), (), covered)


def test_an_entry_counts_what_is_left_of_its_transaction():
    left = bound(where={"public.orders": "c1 = 'c' or k = 3"}).apply(orders())
    assert scns(left) == [100, 101, 102]
    assert left.index["changes"].tolist() == [1, 2, 2]
    assert left.rows + len(left.system) == int(left.index["changes"].sum())
    assert decode_block(encode_block(left)).index.tobytes() == left.index.tobytes()


def test_a_table_that_is_not_wanted_is_left_out_with_its_events():
    left = bound(tables=["public.orders"]).apply(orders())
    assert [str(body.table) for body in left.bodies] == ["public.orders"]
    assert left.system == ()
    right = bound(tables=["*.notes*"]).apply(orders())
    assert [str(body.table) for body in right.bodies] == ["public.notes.old"]
    assert [event.kind for event in right.system] == [SystemKind.TRUNCATE]
    assert scns(right) == [101, 102]


def test_events_of_a_table_come_whatever_the_rest_of_the_filter_says():
    left = bound(
        where={"public.notes.old": "false", "public.orders": "false"},
        partition={"by": "hash", "count": 9, "take": [8]},
    ).apply(orders())
    assert [event.kind for event in left.system] == [SystemKind.TRUNCATE]
    assert scns(left) == [101]


def test_an_event_of_a_namespace_comes_to_who_wants_a_table_of_it():
    event = SystemEvent(7, 0, SystemKind.DROP_SCHEMA, TableId("sales", ""))
    block = Block(transaction_index([(7, 0, 0, 1, ORIGIN_LOG, 1)]), (), (event,), 7)
    assert bound(tables=["sales.orders"]).apply(block) is block
    assert bound(tables=["sal*.orders"]).apply(block) is block
    assert scns(bound(tables=["public.*"]).apply(block)) == []


def test_only_a_filter_of_tables_needs_no_rows():
    assert bound().tables_only
    assert bound(tables=["a.b"]).tables_only
    assert not bound(columns={"public.t": ["k"]}).tables_only
    assert not bound(where={"public.t": "true"}).tables_only
    assert not bound(partition={"by": "mod", "count": 1, "take": [0]}).tables_only


# -- columns --------------------------------------------------------------------------------------


def narrow(schema: TableSchema, history: str, *names: str) -> tuple[TableSchema, Any]:
    filter_ = parse_filter({"columns": {str(schema.table): list(names)}}).bound(lambda _: schema)
    batch = parse_history(history).batch(schema)
    count = batch.num_rows
    index = transaction_index([(1, 0, 0, count, ORIGIN_LOG, 1)])
    block = Block(index, (Body(schema.schema_id, schema.table, batch),), (), 1)
    left = filter_.apply(block)
    assert left.bodies[0].schema_id == schema.schema_id
    assert left.index["changes"].tolist() == [count]
    return filter_.schema(schema.schema_id), left.bodies[0].batch


def test_only_the_wanted_columns_and_the_key_come():
    schema, batch = narrow(table_of(12), "+I(1,a,b) =U(1,?,c)", "c10", "c2")
    assert schema.names == ["k", "c2", "c10"]
    assert batch.schema == change_schema(schema)
    assert batch.column("c2").to_pylist() == ["b", "c"]


def test_missing_bits_stand_for_the_columns_that_are_left():
    schema, batch = narrow(table_of(12), "=U(1,?,c,d,e,f,g,h,i,j,?,l)", "c1", "c10", "c9")
    matrix = missing_matrix(batch.column("_missing"), len(schema.columns))
    assert schema.names == ["k", "c1", "c9", "c10"]
    assert matrix.tolist() == [[False, True, False, True]]


def test_a_change_of_columns_that_are_left_out_still_comes():
    schema, batch = narrow(table_of(3), "-U(1,a,b)+U(1,a,c)", "c1")
    assert batch.column("_op").to_pylist() == ["-U", "+U"]
    assert schema.names == ["k", "c1"]


@pytest.mark.parametrize("check", [KeyCheck.NONE, KeyCheck.DEFERRED])
def test_a_table_that_needs_whole_images_folds_with_fewer_columns(check):
    schema, batch = narrow(table_of(3, check=check), "+I(1,a,b) -U(1,a,b)+U(1,a,c)", "k", "c1")
    effects = fold(schema, [batch]).to_pylist()
    assert [(row["k"], row["c1"]) for row in effects] == [(1, "a")]


def test_whole_columns_are_the_version_itself():
    filter_ = parse_filter({"columns": {"public.orders": ["c1", "c2"]}}).bound(SCHEMAS.__getitem__)
    assert filter_.schema(ORDERS.schema_id) is ORDERS
    block = orders()
    assert filter_.apply(block) is block


def test_a_column_that_is_not_there_is_named_with_its_table():
    filter_ = bound(columns={"public.orders": ["colour"]})
    with pytest.raises(BadFilter, match=r"public\.orders.*colour"):
        filter_.apply(orders())


def test_all_parts_hold_together():
    left = bound(
        tables=["public.orders"],
        columns={"public.orders": ["c1"]},
        partition={"by": "mod", "count": 2, "take": [1]},
        where={"public.orders": "c2 is not null"},
    ).apply(orders())
    (body,) = left.bodies
    assert body.batch.schema.names == [*META, "k", "c1"]
    assert body.batch.column("k").to_pylist() == [1, 1, 3]
    assert body.batch.column("_op").to_pylist() == ["+I", "-U", "+U"]


def test_a_block_is_not_changed_by_what_is_taken_of_it():
    block = orders()
    before = encode_block(block)
    bound(where={"public.orders": "c1 = 'c'"}, columns={"public.orders": ["c1"]}).apply(block)
    assert encode_block(block) == before


def test_a_row_that_is_left_keeps_its_cells():
    rows = parse_history("+I(1,a,b) =U(2,a,?) -D(3,?,?)").rows
    batch = change_batch(ORDERS, rows)
    block = Block(
        transaction_index([(1, 0, 0, 3, ORIGIN_LOG, 1)]),
        (Body(ORDERS.schema_id, ORDERS.table, batch),),
        (),
        1,
    )
    left = bound(where={"public.orders": "k > 1"}).apply(block).bodies[0].batch
    assert left.equals(batch.slice(1))
