"""The counterexamples that broke each simpler rule: ours ends as the source, the simpler one does not.

Each test bears the name that the research gave its case (`correctness-rules`, section 6, 1 to 8 and 18). A rule is
written out here in a few lines, so that nobody has to believe that it would fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from headrace.fold import fold
from headrace.model.schema import KeyCheck, TableSchema
from headrace.testing.notation import MISSING, Row, parse_history, table_of
from headrace.testing.target import ModelTable
from tests.requirements import req

IMMEDIATE, DEFERRED, NONE = KeyCheck.IMMEDIATE, KeyCheck.DEFERRED, KeyCheck.NONE

State = dict[Any, tuple[Any, ...]]
Rule = Callable[[State, list[Row]], State]


def is_plus(row: Row) -> bool:
    return row[2][0] in "+="


def filled(cells: tuple[Any, ...], base: tuple[Any, ...] | None) -> tuple[Any, ...]:
    """Take cells that were not sent from another row; null where there is none."""
    return tuple((base[i] if base else None) if c == MISSING else c for i, c in enumerate(cells))


def last_event_wins(state: State, rows: list[Row]) -> State:
    """Per key the last change decides; what it lacks comes from the row that has this key."""
    after = dict(state)
    for key, row in {row[3][0]: row for row in rows}.items():
        if is_plus(row):
            after[key] = filled(row[3], state.get(key))
        else:
            after.pop(key, None)
    return after


def minus_first(state: State, rows: list[Row]) -> State:
    """All that goes, then all that comes."""
    after = {
        key: cells
        for key, cells in state.items()
        if key not in {r[3][0] for r in rows if not is_plus(r)}
    }
    return after | {row[3][0]: row[3] for row in rows if is_plus(row)}


def equal_rows_cancel(state: State, rows: list[Row]) -> State:
    """Over the whole batch a row that goes and one that comes and is equal are nothing."""
    weights: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        weights[row[3]] += 1 if is_plus(row) else -1
    left = [
        (0, 0, "+I" if weight > 0 else "-D", cells) for cells, weight in weights.items() if weight
    ]
    return minus_first(state, left)


def rows_are_a_set(state: State, rows: list[Row]) -> State:
    """A row is there or it is not, however often it came."""
    after = dict(state)
    for row in rows:
        if is_plus(row):
            after[row[3]] = row[3]
        else:
            after.pop(row[3], None)
    return after


def ours(schema: TableSchema, start: str, log: str) -> Counter[tuple[Any, ...]]:
    target = ModelTable(schema)
    target.apply(fold(schema, [parse_history(start).batch(schema)]), 0, complete=True)
    history = parse_history(log)
    target.apply(fold(schema, [history.batch(schema)], history.truncates), 1, complete=True)
    return target.content()


def theirs(rule: Rule, start: str, log: str) -> Counter[tuple[Any, ...]]:
    held = {row[3][0]: row[3] for row in parse_history(start).rows}
    return Counter(rule(held, parse_history(log).rows).values())


def differ(
    rule: Rule, check: KeyCheck, start: str, log: str, expected: Iterable[tuple[Any, ...]]
) -> None:
    """The rule ends elsewhere, and we where the source does."""
    width = max(len(row[3]) for row in parse_history(f"{start} | {log}").rows)
    assert ours(table_of(width, check=check), start, log) == Counter(expected)
    assert theirs(rule, start, log) != Counter(expected)


@req("T2")
def test_deferrable_shift() -> None:
    log = "-U(1,a) +U(2,a) -U(2,b) +U(3,b)"
    differ(last_event_wins, DEFERRED, "+I(1,a) +I(2,b)", log, [(2, "a"), (3, "b")])


@req("T2")
def test_deferred_insert_before_delete() -> None:
    differ(last_event_wins, DEFERRED, "+I(2,a)", "+I(2,b) -D(2,a)", [(2, "b")])


@req("T2")
def test_in_and_out_deferred() -> None:
    log = "-U(1,x) +U(2,x) -U(2,x) +U(3,x)"
    differ(minus_first, DEFERRED, "+I(1,x)", log, [(3, "x")])


@req("T2")
def test_equal_rows_net_empty_keeps_chunk() -> None:
    """Key 2 came and went while its chunk was read: the chunk's row is the only one that has it."""
    schema = table_of(2, check=DEFERRED)
    log = parse_history("-U(1,x) +U(2,x) -U(2,x) +U(3,x)")
    folded = fold(schema, [log.batch(schema)])
    effects = zip(folded["k"].to_pylist(), folded["_effect"].to_pylist(), strict=True)
    assert sorted(effects) == [(1, "DEAD"), (3, "ROW")]
    # "Any event collides" drops it.
    assert 2 in {row[3][0] for row in log.rows}


@req("T2")
def test_a_b_a_in_one_batch_during_dump() -> None:
    """The chunk's row of the key was dropped for these changes, so they have to bring the row."""
    log = "-U(1,a) +U(1,b) | -U(1,b) +U(1,a)"
    differ(equal_rows_cancel, IMMEDIATE, "", log, [(1, "a")])


@req("T2")
def test_chunk_row_is_not_plus_one() -> None:
    differ(equal_rows_cancel, IMMEDIATE, "", "+I(1,a) +R(1,a) -D(1,a)", [])


@req("T2", "T11")
def test_moved_toast() -> None:
    differ(last_event_wins, IMMEDIATE, "+I(70,0,C)", "-U(70) +U(10,1,?)", [(10, "1", "C")])


@req("T2", "T11")
def test_swap_with_missing() -> None:
    log = "-U(1) +U(9,p,?) -U(2) +U(1,q,?) -U(9) +U(2,p,?)"
    start = "+I(1,p,C1) +I(2,q,C2)"
    differ(last_event_wins, IMMEDIATE, start, log, [(1, "q", "C2"), (2, "p", "C1")])


@req("T2", "T11")
def test_delete_then_move_in() -> None:
    start = "+I(1,p,C1) +I(2,q,C2)"
    differ(last_event_wins, IMMEDIATE, start, "-D(2) -U(1) +U(2,r,?)", [(2, "r", "C1")])


@req("F4", "C42")
@pytest.mark.parametrize("rule", [rows_are_a_set, last_event_wins])
def test_the_worked_example_without_a_key(rule: Rule) -> None:
    """Its cuts are in `test_effects`; a row that came twice and went once is still there."""
    log = "+I(0,alice) | +I(0,alice) | +I(0,Bob) | -D(0,alice)"
    differ(rule, NONE, "", log, [(0, "alice"), (0, "Bob")])
