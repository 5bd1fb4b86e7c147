"""Windows of tables without a key: which rows they hold, and how they are cut into pieces."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from headrace.fold import fold
from headrace.model.block import ORIGIN_SELECT, Block, SystemKind
from headrace.model.change import table_arrow_schema
from headrace.model.mark import Mark, MarkKind
from headrace.model.schema import KeyCheck
from headrace.sources.base import ReceivedMark
from headrace.testing.notation import parse_history, table_of
from headrace.testing.target import ModelTable
from headrace.watermark.emit import multiset_rows, table_blocks
from tests.requirements import req

TABLE = table_of(2, check=KeyCheck.NONE)
HIGH = ReceivedMark(Mark(MarkKind.HIGH, "token", "run"), 500, 7_000)

Row = tuple[int, str | None]


def batch(*rows: Row) -> pa.RecordBatch:
    keys, texts = [key for key, _ in rows], [text for _, text in rows]
    return pa.record_batch([pa.array(keys, pa.int64()), pa.array(texts, pa.string())],
                           schema=table_arrow_schema(TABLE))  # fmt: skip


def net(unseen: str) -> pa.Table:
    """Return the folded form of what a snapshot did not see."""
    history = parse_history(unseen)
    rows = [history.batch(TABLE)] if history.rows else []
    return fold(TABLE, rows, history.truncates)


def left(snapshot: Sequence[pa.RecordBatch], unseen: str) -> list[Row]:
    """Return the rows of the window."""
    out = multiset_rows(TABLE, snapshot, net(unseen))
    return [(row["k"], row["c1"]) for part in out for row in part.to_pylist()]


# -- which rows ------------------------------------------------------------------------------------


def test_a_snapshot_that_saw_everything_leaves_as_it_is() -> None:
    snapshot = [batch((1, "a"), (1, "a")), batch((2, "b"))]
    out = list(multiset_rows(TABLE, snapshot, net("")))
    assert [part is given for part, given in zip(out, snapshot, strict=True)] == [True, True]


@req("T15")
def test_each_unseen_deletion_takes_one_duplicate_wherever_it_lies() -> None:
    snapshot = [batch((1, "a"), (2, "b"), (1, "a")), batch((1, "a"), (1, "a"))]
    assert left(snapshot, "-D(1,a)") == [(2, "b"), (1, "a"), (1, "a"), (1, "a")]
    # Three of four: the third lies in the second batch.
    assert left(snapshot, "-D(1,a) -D(1,a) | -D(1,a)") == [(2, "b"), (1, "a")]


def test_unseen_rows_come_behind_the_snapshot_as_often_as_they_were_added() -> None:
    assert left([batch((1, "a"))], "+I(2,b) | +I(2,b) +I(1,a)") == [
        (1, "a"), (2, "b"), (2, "b"), (1, "a"),
    ]  # fmt: skip


def test_an_unseen_update_takes_the_old_row_and_brings_the_new() -> None:
    assert left([batch((1, "a"), (1, "a"))], "-U(1,a) +U(1,x)") == [(1, "a"), (1, "x")]


def test_what_adds_up_to_nothing_changes_nothing() -> None:
    snapshot = [batch((1, "a"))]
    assert left(snapshot, "+I(9,z) | -D(9,z)") == [(1, "a")]
    assert left(snapshot, "-D(1,a) | +I(1,a)") == [(1, "a")]


@req("T15")
def test_null_is_not_the_empty_text() -> None:
    rows = [batch((1, None), (1, ""), (2, None))]
    assert left(rows, "-D(1,.)") == [(1, ""), (2, None)]
    assert left(rows, "-D(1,)") == [(1, None), (2, None)]


@pytest.mark.parametrize(
    ("unseen", "rows"),
    [
        ("T", []),
        ("+I(3,c) | T", []),
        ("T | +I(3,c) +I(3,c)", [(3, "c"), (3, "c")]),
        ("-D(1,a) | T +I(1,a)", [(1, "a")]),
    ],
)
def test_an_unseen_truncate_takes_the_snapshot_unread(unseen: str, rows: list[Row]) -> None:
    snapshot = iter([batch((1, "a"))])
    out = multiset_rows(TABLE, snapshot, net(unseen))
    assert [tuple(row.values()) for part in out for row in part.to_pylist()] == rows
    assert list(snapshot)


# -- in which pieces -------------------------------------------------------------------------------


def window(*batches: pa.RecordBatch, piece_rows: int = 2) -> list[Block]:
    return list(table_blocks(HIGH, TABLE, batches, piece_rows))


def orders(block: Block) -> list[int]:
    return [order for body in block.bodies for order in body.batch.column("_ord").to_pylist()]


@req("N14")
def test_a_window_begins_with_schema_and_truncate_and_counts_on_through_its_pieces() -> None:
    blocks = window(batch((1, "a"), (1, "a"), (2, "b")), batch((3, "c")))
    assert [[(e.kind, e.scn, e.ord) for e in block.system] for block in blocks] == [
        [(SystemKind.SCHEMA, 500, 0), (SystemKind.TRUNCATE, 500, 1)], [], [], [],
    ]  # fmt: skip
    assert blocks[0].system[0].payload == {"schema_id": TABLE.schema_id}
    assert {event.table for event in blocks[0].system} == {TABLE.table}
    assert [orders(block) for block in blocks] == [[2, 3], [4], [5], []]
    rows = pa.Table.from_batches(body.batch for block in blocks for body in block.bodies)
    assert set(rows["_scn"].to_pylist()) == {500}
    # Never +R: that states the row of a key, and there is none.
    assert set(rows["_op"].to_pylist()) == {"+I"}
    assert rows["_missing"].null_count == rows.num_rows
    assert {body.schema_id for block in blocks for body in block.bodies} == {TABLE.schema_id}


def test_only_the_last_piece_ends_the_window_and_covers_it() -> None:
    blocks = window(batch((1, "a"), (1, "a"), (2, "b")))
    index = np.concatenate([block.index for block in blocks])
    assert index["scn"].tolist() == [500, 500, 500]
    assert index["commit_us"].tolist() == [7_000] * 3
    assert set(index["origin"].tolist()) == {ORIGIN_SELECT}
    assert index["last_piece"].tolist() == [0, 0, 1]
    # The events of the first piece count as changes.
    assert index["changes"].tolist() == [4, 1, 0]
    assert [block.covered_scn for block in blocks] == [499, 499, 500]


def test_an_empty_table_is_one_piece_that_truncates() -> None:
    (block,) = window()
    assert [event.kind for event in block.system] == [SystemKind.SCHEMA, SystemKind.TRUNCATE]
    assert block.bodies == ()
    assert block.index["last_piece"].tolist() == [1]
    assert block.covered_scn == 500


@pytest.mark.parametrize("piece_rows", [1, 2, 3, 100])
def test_however_it_is_cut_it_replaces_what_was_there(piece_rows: int) -> None:
    target = ModelTable(TABLE)
    target.apply(net("+I(7,old) +I(1,a)"), 400, complete=True)
    blocks = window(batch((1, "a"), (1, "a"), (2, "b")), batch(), piece_rows=piece_rows)
    assert all(len(orders(block)) <= piece_rows for block in blocks)
    truncates = [(e.scn, e.ord) for b in blocks for e in b.system if e.kind is SystemKind.TRUNCATE]
    bodies = [body.batch for block in blocks for body in block.bodies]
    target.apply(fold(TABLE, bodies, truncates), 500, complete=True)
    assert target.content() == {(1, "a"): 2, (2, "b"): 1}
