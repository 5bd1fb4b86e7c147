"""The reconciler alone: every counterexample of the window rules, by name."""

from __future__ import annotations

import ast
import inspect
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.model.block import (
    ORIGIN_LOG,
    Block,
    Body,
    SystemEvent,
    SystemKind,
    transaction_index,
)
from headrace.model.change import table_arrow_schema
from headrace.model.schema import KeyCheck, TableSchema
from headrace.model.snapshot import NO, UNKNOWN, YES, TransactionSnapshot
from headrace.testing.notation import change_batch, parse_history, table_of
from headrace.watermark import reconciler as module
from headrace.watermark.reconciler import Reconciler, moved_in
from tests.requirements import req

Row = tuple[int | float | str | None, ...]


@dataclass(frozen=True)
class Saw:
    """A chunk that saw some SCNs, cannot say of others, and did not see the rest."""

    seen: frozenset[int] = frozenset()
    unknown: frozenset[int] = frozenset()

    def sees(self, xid: npt.NDArray[np.int64], scn: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
        verdict = {**dict.fromkeys(self.unknown, UNKNOWN), **dict.fromkeys(self.seen, YES)}
        return np.array([verdict.get(int(s), NO) for s in scn], np.int8)


def saw(*seen: int, unknown: tuple[int, ...] = ()) -> Saw:
    return Saw(frozenset(seen), frozenset(unknown))


def block_of(schema: TableSchema, log: str) -> Block:
    """Return the streamed block of a history whose transactions have SCNs 1, 2, …; xid = SCN."""
    history = parse_history(log)
    scns = sorted({row[0] for row in history.rows} | {scn for scn, _ in history.truncates})
    index = transaction_index((scn, 0, scn, 1, ORIGIN_LOG, 1) for scn in scns)
    events = tuple(
        SystemEvent(s, o, SystemKind.TRUNCATE, schema.table) for s, o in history.truncates
    )
    bodies = (Body(schema.schema_id, schema.table, history.batch(schema)),) if history.rows else ()
    return Block(index, bodies, events, max(scns, default=0))


def survivors(schema: TableSchema, log: str, chunk: str, what: Saw) -> list[tuple[object, ...]]:
    """Return what a chunk emits when it is read beside a streamed history."""
    reconciler = Reconciler(lambda _: schema)
    reconciler.remember(block_of(schema, log))
    rows = [cells for *_, cells in parse_history(chunk).rows]
    return emitted(reconciler.reconcile(schema, chunk_rows(schema, rows), what).rows)


def chunk_rows(schema: TableSchema, rows: list[Row]) -> pa.RecordBatch:
    batch = change_batch(schema, [(0, i, "+R", row) for i, row in enumerate(rows)])
    return pa.record_batch(batch.columns[4:], schema=table_arrow_schema(schema))


def emitted(rows: pa.RecordBatch) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in rows.to_pylist()]


ROWS = "+R(1,a) +R(2,b) +R(3,c)"
TWO, THREE = table_of(2), table_of(3)


@req("H04", "P44", "A-1")
def test_same_key_in_the_window_drops_the_chunk_row() -> None:
    assert survivors(TWO, "=U(2,x)", ROWS, saw()) == [(1, "a"), (3, "c")]


@req("P44", "T11")
def test_deletes_and_both_keys_of_a_move_collide() -> None:
    log = "-D(1) | -U(2,?)+U(3,x)"
    assert survivors(TWO, log, ROWS, saw()) == []


@req("A-3")
def test_same_key_of_another_table_does_not_collide() -> None:
    reconciler = Reconciler(lambda _: TWO)
    other = table_of(2, name="other")
    reconciler.remember(block_of(other, "=U(2,x)"))
    rows = chunk_rows(TWO, [(2, "b")])
    assert emitted(reconciler.reconcile(TWO, rows, saw()).rows) == [(2, "b")]


@req("A-4")
def test_all_keys_collide_and_empty_chunks_are_fine() -> None:
    assert survivors(TWO, "=U(1,x) =U(2,x) =U(3,x)", ROWS, saw()) == []
    assert survivors(TWO, "=U(1,x)", "", saw()) == []


@req("A-5", "N13")
def test_composite_keys_collide_only_as_a_whole() -> None:
    schema = table_of(3, key=2)
    rows = "+R(1,a,x) +R(1,b,y)"
    assert survivors(schema, "=U(1,b,z)", rows, saw()) == [(1, "a", "x")]


@req("N13")
def test_ten_times_the_keys_take_about_ten_times_as_long() -> None:
    """Each row is looked up by its key: comparing all with all would take a hundred times as long."""
    schema = table_of(3, key=2)

    def took_s(count: int) -> float:
        reconciler = Reconciler(lambda _: schema)
        changes = [(10, i, "=U", (i, f"k{i % 7}", "new")) for i in range(0, count, 2)]
        body = Body(schema.schema_id, schema.table, change_batch(schema, changes))
        index = transaction_index([(10, 10, 10, len(changes), 0, 1)])
        reconciler.remember(Block(index, (body,), (), 10))
        rows = chunk_rows(schema, [(i, f"k{i % 7}", "old") for i in range(count)])
        began = time.perf_counter()
        left = reconciler.reconcile(schema, rows, saw()).rows
        took = time.perf_counter() - began
        assert left.num_rows == count // 2
        return took

    few, many = (min(took_s(count) for _ in range(3)) for count in (2_000, 20_000))
    assert many < 40 * few


@req("P49", "P50")
def test_committed_before_low_invisible() -> None:
    """X was streamed before the low mark, yet the select did not see it: the chunk row is stale."""
    assert survivors(TWO, "=U(1,new)", "+R(1,old)", saw()) == []
    assert survivors(TWO, "=U(1,new)", "+R(1,new)", saw(1)) == [(1, "new")]


@req("P49")
def test_snapshot_shapes_at_and_above_xmax() -> None:
    xids = np.array([9, 10, 11, 12])
    empty_list = TransactionSnapshot.parse("10:10:")
    assert empty_list.sees(xids, xids).tolist() == [YES, NO, NO, NO]
    listed = TransactionSnapshot.parse("10:12:10")
    assert listed.sees(xids, xids).tolist() == [YES, NO, YES, NO]


@req("P50")
def test_partial_before_low_mark_patches_the_row() -> None:
    assert survivors(THREE, "=U(1,x1,?)", "+R(1,x0,C)", saw()) == [(1, "x1", "C")]


def test_partial_images_add_up() -> None:
    log = "=U(1,x,?) | =U(1,?,y)"
    assert survivors(THREE, log, "+R(1,a,C)", saw()) == [(1, "x", "y")]
    assert survivors(THREE, log, "+R(1,x,C)", saw(1)) == [(1, "x", "y")]


def test_key_only_delete_in_window_does_not_come_back() -> None:
    assert survivors(THREE, "-D(1,?,?)", "+R(1,a,C)", saw()) == []


def test_move_in_with_missing_columns_is_left_to_the_reread_list() -> None:
    reconciler = Reconciler(lambda _: THREE)
    reconciler.remember(block_of(THREE, "-U(70)+U(10,1,?)"))
    result = reconciler.reconcile(THREE, chunk_rows(THREE, [(10, "0", "C")]), saw())
    assert result.rows.num_rows == 0
    assert result.unsettled.column("k").to_pylist() == [10]


def test_moved_in_names_only_new_keys_with_holes() -> None:
    log = "-U(70)+U(10,1,?) -U(5)+U(5,x,?) -U(6)+U(7,a,b) =U(8,x,?)"
    batch = parse_history(log).batch(THREE)
    old, new = moved_in(THREE, batch)
    assert old.column("k").to_pylist() == [70]
    assert new.column("k").to_pylist() == [10]


@req("P49")
def test_chunk_saw_truncate_or_not() -> None:
    assert survivors(TWO, "T", ROWS, saw()) == []
    assert survivors(TWO, "T", ROWS, saw(1)) == [(1, "a"), (2, "b"), (3, "c")]
    # What lies before a truncate that was seen is seen, too.
    assert survivors(TWO, "=U(1,x) | T | +I(1,y)", "+R(1,y)", saw(2, 3)) == [(1, "y")]


def test_mariadb_stream_past_position() -> None:
    """The stream is past the snapshot's position when the chunk arrives: still not seen, still newer."""
    assert survivors(TWO, "=U(1,x) | =U(2,y)", "+R(1,a) +R(2,b)", saw()) == []


def test_gtid_gap_on_one_key() -> None:
    """The set holds the later transaction of a key, not the earlier: the visible ones are a prefix."""
    log = "=U(1,x1,?) | =U(1,x2,?)"
    assert survivors(THREE, log, "+R(1,x2,C)", saw(2, unknown=(1,))) == [(1, "x2", "C")]


def test_a_seen_transaction_is_seen_as_a_whole() -> None:
    log = "=U(1,x1,?) =U(2,y1,?) | =U(1,x2,?)"
    rows = "+R(1,x2,C) +R(2,y1,D)"
    assert survivors(THREE, log, rows, saw(2, unknown=(1,))) == [(1, "x2", "C"), (2, "y1", "D")]


def test_equal_rows_net_empty_keeps_chunk() -> None:
    schema = table_of(2, check=KeyCheck.DEFERRED)
    log = "-U(1,x)+U(2,x)-U(2,x)+U(3,x)"
    assert survivors(schema, log, "+R(2,x)", saw()) == [(2, "x")]


def test_a_b_a_during_dump_removes_the_row() -> None:
    """Two transactions that cancel are still events: the log carried the row."""
    schema = table_of(2, check=KeyCheck.DEFERRED)
    assert survivors(schema, "-U(1,a)+U(1,b) | -U(1,b)+U(1,a)", "+R(1,a)", saw()) == []


@req("P50")
def test_patches_of_a_version_that_came_back_add_up_in_their_order() -> None:
    """Rows of one version share a body: here one holds what came before the other version's rows, and behind them."""
    grown = table_of(4)
    reconciler = Reconciler({THREE.schema_id: THREE, grown.schema_id: grown}.__getitem__)
    shaped = [(THREE, [(0, "x"), (4, "z")]), (grown, [(2, "y")])]
    bodies = tuple(
        Body(
            schema.schema_id,
            schema.table,
            change_batch(schema, [(1, order, "=U", (1, text)) for order, text in rows]),
        )
        for schema, rows in shaped
    )
    reconciler.remember(Block(transaction_index([(1, 0, 1, 3, ORIGIN_LOG, 1)]), bodies, (), 1))
    found = reconciler.reconcile(THREE, chunk_rows(THREE, [(1, "a", "big")]), saw())
    assert emitted(found.rows) == [(1, "z", "big")]


@req("P47")
def test_transactions_are_forgotten_once_a_snapshot_has_seen_them() -> None:
    reconciler = Reconciler(lambda _: TWO)
    reconciler.remember(block_of(TWO, "=U(1,x) | =U(2,y) | =U(3,z)"))
    reconciler.forget(saw(1, 3))
    assert reconciler.remembered == 1
    assert reconciler.unseen_floor == 2
    rows = chunk_rows(TWO, [(1, "a"), (2, "b"), (3, "c")])
    assert emitted(reconciler.reconcile(TWO, rows, saw()).rows) == [(1, "a"), (3, "c")]


def test_one_long_transaction_does_not_hold_the_others_back() -> None:
    reconciler = Reconciler(lambda _: TWO)
    reconciler.remember(block_of(TWO, " | ".join(f"=U({i},x)" for i in range(100))))
    reconciler.forget(TransactionSnapshot(1, 1_000, frozenset({7})))
    assert reconciler.remembered == 1


def test_restart_forgets_recent() -> None:
    """Rows streamed before a restart are gone: no chunk until a snapshot has seen their transactions."""
    reconciler = Reconciler(lambda _: TWO)
    reconciler.remember_unseen(np.array([5]), np.array([5]))
    assert not reconciler.can_reconcile
    reconciler.forget(saw())
    assert not reconciler.can_reconcile
    reconciler.forget(saw(5))
    assert reconciler.can_reconcile


@req("P47", "T7")
def test_memory_bound_lets_rows_go_and_never_transactions() -> None:
    reconciler = Reconciler(lambda _: TWO, memory_bytes=200)
    reconciler.remember(block_of(TWO, " | ".join(f"+I({i},xxxxxxxxxx)" for i in range(50))))
    assert reconciler.nbytes == 0
    assert reconciler.remembered == 50
    assert not reconciler.can_reconcile
    reconciler.forget(saw(*range(1, 51)))
    assert reconciler.can_reconcile


@req("P47", "T7")
def test_while_nothing_is_dumped_an_eighth_of_the_memory_keeps_the_oldest_rows() -> None:
    first, later = block_of(TWO, "=U(1,x) | =U(2,y)"), block_of(TWO, "=U(1,x) | =U(2,y) | =U(3,z)")
    reconciler = Reconciler(lambda _: TWO, memory_bytes=8 * first.nbytes + 7)
    reconciler.remember(first, idle=True)
    reconciler.remember(later, idle=True)
    assert reconciler.nbytes == first.nbytes
    assert reconciler.remembered == 3
    whole = reconciler.can_reconcile
    assert not whole
    # Seen is what was let go; the first, which waits longer, still has its rows.
    reconciler.forget(saw(3))
    assert reconciler.can_reconcile
    rows = chunk_rows(TWO, [(1, "a"), (2, "b"), (3, "c")])
    assert emitted(reconciler.reconcile(TWO, rows, saw(3)).rows) != emitted(rows)


def block_at(schema: TableSchema, scn: int, changes: Sequence[tuple[str, Row]]) -> Block:
    """Return the streamed block of one transaction: operations and cells."""
    rows = [(scn, place, op, cells) for place, (op, cells) in enumerate(changes)]
    body = Body(schema.schema_id, schema.table, change_batch(schema, rows))
    return Block(transaction_index([(scn, 0, scn, 1, ORIGIN_LOG, 1)]), (body,), (), scn)


def remembered_rows(reconciler: Reconciler, scns: range, text: str) -> weakref.ReferenceType[Any]:
    """Let transactions of one row each be remembered, and return a reference to the last one's rows."""
    for scn in scns:
        block = block_at(TWO, scn, [("=U", (scn, text))])
        reconciler.remember(block)
    return weakref.ref(block.bodies[0].batch)


def test_the_log_does_not_wait_for_the_memory_of_a_second_to_be_given_back() -> None:
    reconciler = Reconciler(lambda _: TWO)
    last = remembered_rows(reconciler, range(1, 201), "x")
    reconciler.forget(saw(*range(1, 201)))
    assert (reconciler.remembered, reconciler.nbytes) == (0, 0)
    # By and by, and all of it while a quarter as many come: it never adds up.
    remembered_rows(reconciler, range(201, 250), "y")
    assert last() is not None
    remembered_rows(reconciler, range(250, 251), "y")
    assert last() is None


def test_much_memory_is_given_back_at_once() -> None:
    reconciler = Reconciler(lambda _: TWO)
    before = pa.total_allocated_bytes()
    remembered_rows(reconciler, range(1, 41), "x" * (1 << 20))
    assert pa.total_allocated_bytes() - before >= 40 << 20
    reconciler.forget(saw(*range(1, 41)))
    assert pa.total_allocated_bytes() - before < 8 << 20


@req("H07", "P65")
def test_it_imports_no_driver_and_no_clock() -> None:
    tree = ast.parse(inspect.getsource(module))
    roots = {
        ((node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name).split(
            "."
        )[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert roots <= {"__future__", "collections", "dataclasses", "numpy", "pyarrow", "headrace"}


@req("A-12")
def test_what_comes_again_after_a_reconnect_is_kept_once() -> None:
    schema = table_of(2, check=KeyCheck.DEFERRED)
    reconciler = Reconciler(lambda _: schema)
    block = block_of(schema, "+I(1,a) | -U(1,a)+U(1,b)")
    reconciler.remember(block)
    reconciler.remember(block)
    assert reconciler.remembered == 2
    reconciler.rewind(1)
    reconciler.remember(block)
    assert reconciler.remembered == 2
    rows = chunk_rows(schema, [(1, "a"), (2, "z")])
    assert emitted(reconciler.reconcile(schema, rows, saw()).rows) == [(2, "z")]
