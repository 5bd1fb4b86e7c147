"""The decision table of the fold, and every counterexample that breaks a simpler rule."""

from __future__ import annotations

import itertools
from collections import Counter

import pyarrow as pa
import pytest

from headrace.errors import MalformedTransaction, ProtocolError
from headrace.fold import combine, fold
from headrace.model.schema import KeyCheck, TableSchema
from headrace.testing.notation import change_batch, parse_history, table_of
from headrace.testing.target import ModelTable
from tests.requirements import req

IMMEDIATE, DEFERRED, NONE = KeyCheck.IMMEDIATE, KeyCheck.DEFERRED, KeyCheck.NONE


def after(
    schema: TableSchema, start: str, log: str, *, complete: bool = True, cuts: tuple[int, ...] = ()
) -> Counter[tuple[object, ...]]:
    """Return the rows of a model table that held ``start`` once ``log`` is applied, cut before the given rows."""
    target = ModelTable(schema)
    target.apply(fold(schema, [parse_history(start).batch(schema)]), 0, complete=True)
    history = parse_history(log)
    edges = [0, *cuts, len(history.rows)]
    for first, last in itertools.pairwise(edges):
        batch = history.batch(schema, first, last)
        truncates = history.truncates if not cuts else ()
        target.apply(fold(schema, [batch], truncates), last, complete=complete)
    return target.content()


def rows(*rows: tuple[object, ...]) -> Counter[tuple[object, ...]]:
    return Counter(rows)


CASES = [
    ("insert_delete", IMMEDIATE, "", "+I(1,a) -D(1)", []),
    ("delete_insert", IMMEDIATE, "+I(1,a)", "-D(1) +I(1,b)", [(1, "b")]),
    ("patch_keeps_missing", IMMEDIATE, "+I(1,a,C)", "=U(1,b,?)", [(1, "b", "C")]),
    ("patch_after_full", IMMEDIATE, "+I(1,a,C)", "=U(1,b,D) =U(1,c,?)", [(1, "c", "D")]),
    ("two_patches", IMMEDIATE, "+I(1,a,C)", "=U(1,x,?) =U(1,?,y)", [(1, "x", "y")]),
    ("moves_then_delete", IMMEDIATE, "+I(0,a)", "-U(0)+U(1,b) -U(1)+U(2,c) -D(2)", []),
    (
        "swap_with_missing",
        IMMEDIATE,
        "+I(1,p,C1) +I(2,q,C2)",
        "-U(1)+U(9,p,?) -U(2)+U(1,q,?) -U(9)+U(2,p,?)",
        [(1, "q", "C2"), (2, "p", "C1")],
    ),
    (
        "delete_then_move_in",
        IMMEDIATE,
        "+I(1,p,C1) +I(2,q,C2)",
        "-D(2) -U(1)+U(2,r,?)",
        [(2, "r", "C1")],
    ),
    ("moved_toast", IMMEDIATE, "+I(70,0,C)", "-U(70)+U(10,1,?)", [(10, "1", "C")]),
    ("chunk_row_is_not_plus_one", IMMEDIATE, "", "+I(1,a) +R(1,a) -D(1,a)", []),
    ("read_then_patch", IMMEDIATE, "", "+R(1,a,C) =U(1,b,?)", [(1, "b", "C")]),
    ("patch_then_read", IMMEDIATE, "", "=U(1,x,?) +R(1,a,C)", [(1, "a", "C")]),
    ("old_image_carries", IMMEDIATE, "", "-U(1,a,C)+U(2,b,?)", [(2, "b", "C")]),
    ("truncate", IMMEDIATE, "+I(1,a) +I(2,b)", "+I(3,c) T +I(4,d)", [(4, "d")]),
    (
        "deferrable_shift",
        DEFERRED,
        "+I(1,a) +I(2,b)",
        "-U(1,a)+U(2,a) -U(2,b)+U(3,b)",
        [(2, "a"), (3, "b")],
    ),
    ("deferred_insert_before_delete", DEFERRED, "+I(2,a)", "+I(2,b) -D(2,a)", [(2, "b")]),
    (
        "in_and_out_deferred",
        DEFERRED,
        "+I(1,x)",
        "-U(1,x)+U(2,x) -U(2,x)+U(3,x)",
        [(3, "x")],
    ),
    ("a_b_a", DEFERRED, "+I(1,a)", "-U(1,a)+U(1,b) | -U(1,b)+U(1,a)", [(1, "a")]),
    (
        "keyless_counts",
        NONE,
        "+I(1,a) +I(1,a)",
        "-D(1,a) +I(2,b) +I(2,b)",
        [(1, "a"), (2, "b"), (2, "b")],
    ),
    ("keyless_truncate", NONE, "+I(1,a)", "+I(1,a) T +I(1,a)", [(1, "a")]),
]


@req("T2", "T11", "T15")
@pytest.mark.parametrize(
    ("check", "start", "log", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_decision_table(
    check: KeyCheck, start: str, log: str, expected: list[tuple[object, ...]]
) -> None:
    width = max(len(cells) for *_, cells in parse_history(start + log).rows)
    assert after(table_of(width, check=check), start, log) == rows(*expected)


@req("T2")
def test_moved_in_row_waits_for_its_chunk_while_the_dump_runs() -> None:
    schema = table_of(3)
    assert after(schema, "+I(10,old,old)", "-U(70)+U(10,1,?)", complete=False) == rows()


def test_a_key_with_two_rows_at_transaction_end_is_malformed() -> None:
    schema = table_of(2, check=DEFERRED)
    with pytest.raises(MalformedTransaction, match=r"public\.t.*SCN 1"):
        fold(schema, [parse_history("+I(1,a) +I(1,b)").batch(schema)])


def test_a_patch_on_a_table_that_needs_whole_images_is_refused() -> None:
    for check in (DEFERRED, NONE):
        schema = table_of(2, check=check)
        with pytest.raises(ProtocolError, match="whole images"):
            fold(schema, [parse_history("=U(1,?)").batch(schema)])


def test_half_an_update_with_missing_columns_is_refused() -> None:
    schema = table_of(3)
    with pytest.raises(ProtocolError, match="no first half"):
        fold(schema, [parse_history("+I(5,a,b) +U(1,x,?)").batch(schema)])


CDAP_KEYED = (
    "+I(0,alice) | -U(0,alice)+U(1,alice) | -U(1,alice)+U(2,alice) | -D(2,alice) | "
    "+I(0,Alice) | +I(1,blob) | -U(1,blob)+U(1,Bob)"
)
CDAP_KEYLESS = (
    "+I(0,alice) | +I(0,alice) | +I(0,Bob) | -U(0,alice)+U(0,Alyce) | -U(0,alice)+U(0,Alyce) | "
    "-U(0,Alyce)+U(0,Alice) | -U(0,Alyce)+U(0,Alice) | -D(0,Alice) | -D(0,Alice)"
)
"""The worked examples, one position per event, so that every cut is a cut between positions."""


def pair_edges(log: str) -> list[int]:
    """Return every place where a stretch may be cut: not between the halves of an update."""
    history = parse_history(log).rows
    return [i for i in range(1, len(history)) if history[i][2] != "+U"]


def replicate(
    schema: TableSchema, log: str, cuts: tuple[int, ...], crash_after: int | None
) -> ModelTable:
    """Apply a log in batches; after the given batch, start again from the first change, ledger in hand."""
    target, history = ModelTable(schema), parse_history(log)
    edges = [0, *cuts, len(history.rows)]
    batches = [history.rows[a:b] for a, b in itertools.pairwise(edges)]
    if crash_after is not None:
        batches.insert(crash_after + 1, history.rows[: edges[crash_after + 1]])
    for batch in batches:
        fresh = [row for row in batch if row[0] > target.applied_scn]
        target.apply(fold(schema, [change_batch(schema, fresh)]), batch[-1][0], complete=True)
    return target


@req("F4", "C42", "C46", "C50")
@pytest.mark.parametrize(
    ("check", "log", "cut_count", "final"),
    [
        (IMMEDIATE, CDAP_KEYED, 64, [(0, "Alice"), (1, "Bob")]),
        (NONE, CDAP_KEYLESS, 256, [(0, "Bob")]),
    ],
    ids=["with primary key", "without primary key"],
)
def test_every_cut_of_the_worked_examples(
    check: KeyCheck, log: str, cut_count: int, final: list[tuple[object, ...]]
) -> None:
    schema = table_of(2, check=check)
    edges = pair_edges(log)
    cuts = [c for n in range(len(edges) + 1) for c in itertools.combinations(edges, n)]
    assert len(cuts) == cut_count
    for cut in cuts:
        for crash_after in (None, len(cut) // 2):
            assert replicate(schema, log, cut, crash_after).content() == rows(*final)


@pytest.mark.parametrize("check", [IMMEDIATE, NONE])
def test_combine_equals_fold_of_the_whole(check: KeyCheck) -> None:
    log = "+I(1,a,b) =U(1,c,?) | -U(1)+U(2,d,?) =U(3,?,x) | -D(9) -U(3)+U(1,?,?) | +R(9,q,r) =U(2,?,z) -U(9)+U(3,s,?)"
    if check is NONE:
        log = "+I(1,a,b) -D(2,a,b) | +I(1,a,b) | -D(1,a,b) -D(1,a,b) +I(2,a,b)"
    schema = table_of(3, check=check)
    history = parse_history(log)
    whole = _canonical(fold(schema, [history.batch(schema)]))
    edges = pair_edges(log)
    for one, two in itertools.combinations([0, *edges], 2):
        parts = [
            fold(schema, [history.batch(schema, a, b)])
            for a, b in ((0, one), (one, two), (two, None))
        ]
        left = combine(schema, combine(schema, parts[0], parts[1]), parts[2])
        right = combine(schema, parts[0], combine(schema, parts[1], parts[2]))
        assert _canonical(left) == whole
        assert _canonical(right) == whole


def test_truncate_in_the_second_half_wipes_the_first() -> None:
    schema = table_of(2)
    first = fold(schema, [parse_history("+I(1,a)").batch(schema)])
    history = parse_history("T +I(2,b)", scn=5)
    second = fold(schema, [history.batch(schema)], history.truncates)
    both = combine(schema, first, second)
    assert both["_effect"].to_pylist() == ["ALL_DEAD", "ROW"]


def _canonical(folded: pa.Table) -> list[str]:
    return sorted(str(row) for row in folded.to_pylist())
