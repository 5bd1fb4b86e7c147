"""Rows as events, against histories that people can read."""

from __future__ import annotations

import pytest

from headrace.client import rows as rows_module
from headrace.client.rows import Rows, RowSlice
from headrace.model.block import Body
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
