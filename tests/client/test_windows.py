"""Blocks into windows: what stands where inside one."""

from __future__ import annotations

from headrace.client.rows import RowSlice
from headrace.client.windows import Windows
from headrace.model.block import Block, Body, SystemEvent, SystemKind, transaction_index
from headrace.testing.notation import parse_history, table_of
from headrace.wire.place import Place


def test_a_system_event_stands_between_the_rows_before_it_and_those_behind():
    schema = table_of(2)
    history = parse_history("+I(1,a) +I(2,b) T +I(3,c) T")
    events = tuple(
        SystemEvent(scn, order, SystemKind.TRUNCATE, schema.table)
        for scn, order in history.truncates
    )
    body = Body(schema.schema_id, schema.table, history.batch(schema))
    block = Block(transaction_index([(1, 5, 7, 5, 0, 1)]), (body,), events, 1)
    for after, expected in (
        (Place(0), [[1, 2], "T", [3], "T"]),
        (Place(1, 0), [[2], "T", [3], "T"]),
        (Place(1, 2), [[3], "T"]),
        (Place(1, 3), ["T"]),
    ):
        windows = Windows(
            "shop", after, {schema.schema_id: schema}.__getitem__, shapes={}, merge=False
        )
        (piece,) = windows.cut(block)
        told = [
            [event.key[0] for event in part.events()] if isinstance(part, RowSlice) else "T"
            for part in piece.parts
        ]
        assert told == expected
        assert windows.place == Place(1)
        assert piece.window.resumed_after == (after.ord if after.scn else -1)
