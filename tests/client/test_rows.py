"""Rows as events, against histories that people can read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.client import rows as rows_module
from headrace.client.errors import Unconvertible
from headrace.client.rows import Rows, RowSlice
from headrace.client.shapes import ArrowShape
from headrace.model.block import Body
from headrace.model.change import change_schema
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.testing.notation import parse_history, table_of


@pytest.mark.parametrize("at_once", [1, 2, 3, 4096])
def test_an_update_of_two_images_is_one_event_and_what_was_not_sent_is_left_out(
    monkeypatch, at_once
):
    monkeypatch.setattr(rows_module, "_AT_ONCE", at_once)
    schema = table_of(3)
    history = "+I(1,a,.) -U(1,a,.)+U(2,b,?) =U(2,?,c) | -D(2,?,?) -U(3,x,y)+U(3,x,z)"
    batch = parse_history(history).batch(schema)
    rows = Rows(Body(schema.schema_id, schema.table, batch), schema, None)
    told = [
        (e.scn, e.ord, e.op, e.key, e.row, e.before, sorted(e.missing))
        for e in rows.events(0, batch.num_rows)
    ]
    assert told == [
        (1, 0, "+I", (1,), {"k": 1, "c1": "a", "c2": None}, None, []),
        (1, 2, "+U", (2,), {"k": 2, "c1": "b"}, {"k": 1, "c1": "a", "c2": None}, ["c2"]),
        (1, 3, "=U", (2,), {"k": 2, "c2": "c"}, None, ["c1"]),
        (2, 0, "-D", (2,), {"k": 2}, None, ["c1", "c2"]),
        (2, 2, "+U", (3,), {"k": 3, "c1": "x", "c2": "z"}, {"k": 3, "c1": "x", "c2": "y"}, []),
    ]
    assert [e.ord for e in rows.events(1, 4)] == [2, 3]


def test_a_batch_says_whether_it_is_all_that_came_together():
    schema = table_of(2)
    batch = parse_history("+I(1,a) +I(2,b)").batch(schema)
    rows = Rows(Body(schema.schema_id, schema.table, batch), schema, None)
    assert [RowSlice(rows, *part).batch().whole for part in ((0, 2), (0, 1), (1, 2))] == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("kind", "cells"),
    [
        (pa.date32(), [1, 2**31 - 1, 2]),
        (pa.timestamp("us"), [1, -(2**63), 2]),
        (pa.timestamp("us", tz="UTC"), [1, 2**63 - 1, 2]),
    ],
)
def test_a_value_that_python_does_not_have_is_in_the_way_of_its_own_row_alone(kind, cells):
    rows = rows_with(kind, cells, None)
    assert [len(list(rows.events(i, i + 1))) for i in (0, 2)] == [1, 1]
    with pytest.raises(Unconvertible, match=r"public\.t\.c1: .*infinite") as raised:
        list(rows.events(0, 3))
    assert raised.value.column == "c1"


def test_a_value_that_a_wanted_type_does_not_have_is_named_by_its_column():
    shape = ArrowShape(pa.schema([("k", pa.int64()), ("c1", pa.timestamp("us"))]))
    rows = rows_with(pa.date32(), [1, 2**31 - 1], shape)
    with pytest.raises(Unconvertible, match=r"public\.t\.c1"):
        rows.batch(0, 2)


def rows_with(kind: pa.DataType, cells: list[int], shape: ArrowShape | None) -> Rows:
    """Return a row for each cell, given as the number that stands for it."""
    columns = (Column("k", pa.int64(), "bigint"), Column("c1", kind, str(kind)))
    schema = TableSchema(TableId("public", "t"), columns, ("k",), KeyCheck.IMMEDIATE)
    count = len(cells)
    batch = pa.record_batch(
        [
            pa.array(range(1, count + 1), pa.int64()),
            pa.array([0] * count, pa.int32()),
            pa.array(["+I"] * count),
            pa.nulls(count, pa.binary()),
            pa.array(range(count), pa.int64()),
            pa.array(cells, pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind),
        ],
        schema=change_schema(schema),
    )
    return Rows(Body(schema.schema_id, schema.table, batch), schema, shape)
