"""What target tables do when columns of their sources change, by policy, through the applier: any cut, any crash."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from headrace.errors import IncompatibleSchemaChange, MadeOtherwise
from headrace.lake.modes import Mode
from headrace.lake.policies import Policies
from headrace.observe.failpoints import arm, disarm
from tests.requirements import req
from tests.spark.policies import (
    CRASHES,
    KEEP,
    NARROW,
    NEW,
    OFTEN,
    OLD,
    RECOPY,
    RETYPED,
    Bench,
    Crash,
    announce,
    begun,
    crash,
)

pytestmark = pytest.mark.spark


@req("C30", "C45")
@pytest.mark.parametrize("together", [True, False])
def test_a_column_of_another_type_is_put_aside_and_the_new_one_filled(
    policed: Bench, together: bool
) -> None:
    policed.policies(NEW)
    begun(policed)
    last = policed.log.write(OLD, "=U(1,A1,B1)")
    announce(policed, RETYPED)
    middle = policed.log.write(RETYPED, "=U(2,A2,?) | +I(4,a4,40)")
    end = policed.dumped(RETYPED, "+R(1,A1,10) +R(2,A2,20) | -D(3)", "again")
    policed.run(end) if together else policed.run(last, middle, end)
    assert (
        policed.rows()
        == policed.in_spark()
        == [
            {"k": 1, "a": "A1", "b_was_string": "B1", "b": b"10"},
            {"k": 2, "a": "A2", "b_was_string": "b2", "b": b"20"},
            {"k": 4, "a": "a4", "b_was_string": None, "b": b"40"},
        ]
    )
    assert policed.state() == "live"
    # A restart knows the kept column, too.
    policed.run(policed.log.write(RETYPED, "-U(1) +U(9,?,?) | =U(2,x,?) | +R(4,y,41)"))
    assert policed.rows() == [
        {"k": 2, "a": "x", "b_was_string": "b2", "b": b"20"},
        {"k": 4, "a": "y", "b_was_string": None, "b": b"41"},
        {"k": 9, "a": "A1", "b_was_string": "B1", "b": b"10"},
    ]


@req("C30")
def test_a_type_that_changes_amid_a_transaction_keeps_the_table_going(policed: Bench) -> None:
    policed.policies(NEW)
    begun(policed)
    announce(policed, RETYPED)
    policed.run(policed.log.write(RETYPED, "+R(1,a1,10) +R(2,a2,20) +R(3,a3,30)"))
    assert [row["b"] for row in policed.rows()] == [b"10", b"20", b"30"]


@req("C30")
def test_a_dropped_column_stays_with_its_rows(policed: Bench) -> None:
    policed.policies(KEEP)
    begun(policed)
    announce(policed, NARROW)
    policed.run(policed.log.write(NARROW, "=U(1,A1) | +I(4,a4) | -D(2) | +I(2,a5)"))
    assert (
        policed.rows()
        == policed.in_spark()
        == [
            {"k": 1, "a": "A1", "b": "b1"},
            {"k": 2, "a": "a5", "b": None},
            {"k": 3, "a": "a3", "b": "b3"},
            {"k": 4, "a": "a4", "b": None},
        ]
    )


@pytest.mark.parametrize(
    "mode",
    [
        Mode.HISTORY,
        *(pytest.param(m, marks=pytest.mark.long) for m in (Mode.APPEND, Mode.SOFT_DELETE)),
    ],
)
def test_rows_of_other_modes_have_the_columns_of_their_time(policed: Bench, mode: Mode) -> None:
    policed.policies(NEW, mode)
    begun(policed)
    announce(policed, RETYPED)
    assert not policed.run(policed.log.write(RETYPED, "=U(1,A1,11)")).failing
    found = Counter((row["k"], row["b_was_string"], row["b"]) for row in policed.rows())
    assert found[1, None, b"11"] == 1
    assert found[3, "b3", None] == 1
    # What was before is kept as it was, where the mode keeps it.
    assert found[1, "b1", None] == (0 if mode is Mode.SOFT_DELETE else 1)


def test_without_a_policy_the_table_stops_and_keeps_its_rows(policed: Bench) -> None:
    begun(policed)
    before = policed.rows()
    announce(policed, RETYPED)
    (error,) = policed.run(policed.log.write(RETYPED, "+R(1,a1,10)")).failing
    assert isinstance(error, IncompatibleSchemaChange)
    assert (policed.rows(), policed.state(), policed.asked) == (before, "failing", [])


@req("C12", "C43")
@pytest.mark.parametrize(
    ("policies", "name"),
    [
        pytest.param(policies, name, marks=() if (policies, name) in OFTEN else pytest.mark.long)
        for policies in (NEW, RECOPY)
        for name in CRASHES
    ],
)
def test_a_crash_at_any_step_changes_nothing(policed: Bench, policies: Policies, name: str) -> None:
    rng = random.Random(name)
    policed.policies(policies)
    begun(policed)
    announce(policed, RETYPED)
    ends = [policed.log.write(RETYPED, "=U(1,A1,?) | +I(4,a4,40)")]
    ends.append(policed.log.write(RETYPED, "+R(1,A1,10) +R(2,a2,20)"))
    ends.append(policed.dumped(RETYPED, "+R(3,a3,30) +R(4,a4,40) | -D(2)", "asked 1"))
    ends.append(policed.log.write(RETYPED, "=U(3,A3,?)"))
    while True:
        passes = rng.randrange(1, 4)

        def after_some() -> None:
            nonlocal passes
            passes -= 1
            if not passes:
                crash()

        arm(name, after_some)
        try:
            policed.run(*ends)
        except Crash:
            ends = ends[rng.randrange(2) :] or ends
        else:
            break
        finally:
            disarm()
        if rng.random() < 0.3:
            break
    applier = policed.run(ends[-1])
    assert not applier.failing
    kept = {1: "b1", 3: "b3", 4: None}
    found = [(row["k"], row["a"], row["b"]) for row in policed.rows()]
    assert found == [(1, "A1", b"10"), (3, "A3", b"30"), (4, "a4", b"40")]
    if policies is NEW:
        assert {row["k"]: row["b_was_string"] for row in policed.rows()} == kept
    assert policed.state() == "live"


@pytest.mark.parametrize(
    ("policies", "said"), [(KEEP, "columns that the source no longer has"), (RECOPY, "a new copy")]
)
def test_a_target_that_cannot_go_on_with_a_table_says_so(
    policed: Bench, policies: Policies, said: str
) -> None:
    policed.policies(policies)
    begun(policed)
    later = NARROW if policies is KEEP else RETYPED
    announce(policed, later)
    policed.run(policed.log.write(later, "+I(8,a)" if policies is KEEP else "+I(8,a,b)"))
    before = policed.rows()
    policed.policies(Policies())
    policed.merges = True
    (error,) = policed.run(policed.log.write(later, "-D(1)")).failing
    assert isinstance(error, MadeOtherwise)
    assert re.search(f"public.t has {said}.* which the target merge cannot", error.message)
    assert policed.rows() == before
