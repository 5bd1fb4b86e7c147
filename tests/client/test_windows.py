"""Blocks into windows: what stands where inside one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from headrace.client import windows as windows_module
from headrace.client.errors import ClockWentBack
from headrace.client.rows import RowSlice
from headrace.client.windows import Piece, Windows
from headrace.errors import ProtocolError
from headrace.model.block import (
    ORIGIN_SELECT,
    Block,
    Body,
    SystemEvent,
    SystemKind,
    transaction_index,
)
from headrace.testing.histories import TABLES
from headrace.testing.notation import parse_history, table_of
from headrace.wire.place import Place
from tests.changelog.windows import TABLE, joined, window
from tests.client.logs import random_blocks
from tests.requirements import req


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


def cutting(after: Place, *, merge: bool = False) -> Windows:
    return Windows("shop", after, lambda _: TABLE, shapes={}, merge=merge)


def told(pieces: Iterable[Piece]) -> list[tuple[int, int]]:
    """Return the places of all rows of some pieces, in the order in which they are told."""
    parts = [part for piece in pieces for part in piece.parts]
    return [
        event.place[:2] for part in parts if isinstance(part, RowSlice) for event in part.events()
    ]


@req("B-10")
@pytest.mark.parametrize("scns", [(1, 3, 2), (1, 2, 2)])
def test_a_block_whose_transactions_do_not_rise_is_refused_whole(scns):
    block = joined([window(scn) for scn in (1, 2, 3)])
    index = block.index.copy()
    index["scn"] = scns
    windows = cutting(Place(0))
    with pytest.raises(ClockWentBack) as refused:
        list(windows.cut(replace(block, index=index)))
    assert str(scns[2]) in str(refused.value)
    assert windows.place == Place(0)


@req("B-6")
@pytest.mark.parametrize("scn", [4, 7])
def test_an_open_window_goes_on_with_its_own_rest_or_not_at_all(scn):
    windows = cutting(Place(4))
    assert told(windows.cut(window(5, 4, last=False))) == [(5, n) for n in range(4)]
    assert (windows.place, windows.inside) == (Place(5, 3), True)
    if scn > 5:
        with pytest.raises(ProtocolError, match="The rest of transaction 5 behind change 3"):
            list(windows.cut(window(scn)))
    else:
        # What came before once more is nothing new.
        assert told(windows.cut(window(scn))) == []
    windows.cover(9)
    assert (windows.place, windows.inside) == (Place(5, 3), True)
    # Once more from its beginning, as after a break, and cut elsewhere.
    assert told(windows.cut(window(5, 3, last=False))) == []
    assert told(windows.cut(window(5, 5, first=3))) == [(5, n) for n in range(4, 8)]
    assert (windows.place, windows.inside) == (Place(5), False)
    windows.cover(9)
    assert windows.place == Place(9)


@pytest.mark.parametrize("merge", [False, True])
def test_whoever_goes_on_within_a_window_is_told_its_rest_and_each_change_once(merge):
    whole = [window(scn, 3) for scn in (5, 6, 7)]
    for order in range(3):
        windows = cutting(Place(5, order), merge=merge)
        pieces = list(windows.cut(joined(whole)))
        assert told(pieces) == [(5, n) for n in range(order + 1, 3)] + [
            (scn, n) for scn in (6, 7) for n in range(3)
        ]
        # The rest of a window that was begun before is no part of another one.
        assert pieces[0].window.scn == 5
        assert [piece.window.resumed_after for piece in pieces] == [order] + [-1] * (
            len(pieces) - 1
        )
        assert told(windows.cut(joined(whole))) == []


def test_transactions_are_one_window_where_they_may_be_and_end_in_the_block():
    log = joined([window(scn) for scn in (1, 2, 3)])
    index = log.index.copy()
    index["origin"][1] = ORIGIN_SELECT
    (whole,) = cutting(Place(0), merge=True).cut(log)
    assert (whole.window.first_scn, whole.window.scn, whole.window.transactions) == (1, 3, 3)
    # A chunk's window stays apart from the log's.
    parts = list(cutting(Place(0), merge=True).cut(replace(log, index=index)))
    assert [piece.window.origin for piece in parts] == ["log", "select", "log"]
    # One that is open stays apart from those that ended.
    open_ = joined([window(1), window(2), window(3, last=False)])
    parts = list(cutting(Place(0), merge=True).cut(open_))
    assert [(piece.window.scn, piece.ends) for piece in parts] == [(2, True), (3, False)]
    assert parts[1].place == Place(3, 1)


@req("D100")
@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_blocks_that_are_one_window_are_cut_as_any_other(monkeypatch, seed, merge):
    blocks = random_blocks(seed, steps=60)
    by_id = {schema.schema_id: schema for schema in TABLES}
    for after in (0, blocks[len(blocks) // 2].first_scn):
        shown = []
        for few in (0, 64):
            monkeypatch.setattr(windows_module, "_FEW", few)
            windows = Windows("shop", Place(after), by_id.__getitem__, shapes={}, merge=merge)
            found: list[tuple[object, ...]] = []
            for block in blocks:
                for window_, begins, ends, parts, place in windows.cut(block):
                    slices = [
                        (part.rows.schema, part.start, part.stop)
                        if isinstance(part, RowSlice)
                        else part
                        for part in parts
                    ]
                    found.append((window_, begins, ends, slices, place, windows.place))
                found.append((windows.place, windows.inside))
            shown.append(found)
        assert shown[0] == shown[1]


@req("D100")
def test_a_block_of_one_window_is_cut_without_a_look_at_its_rows(monkeypatch):
    """Most blocks of a stream that is followed are: what is done to each of them is what following costs."""

    def pieces(*_: object) -> None:
        raise AssertionError("this is the long way")

    monkeypatch.setattr(Windows, "_pieces", pieces)
    one = joined([window(scn) for scn in range(1, 20)])
    (piece,) = cutting(Place(0), merge=True).cut(one)
    assert (piece.window.transactions, len(told([piece]))) == (19, sum(one.index["changes"]))
    (piece,) = cutting(Place(4)).cut(window(5))
    assert (piece.window.scn, piece.begins, piece.ends) == (5, True, True)
