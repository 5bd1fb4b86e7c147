"""The design's two worked examples in one batch: what the fold says of each key, and of each row where there is none.

The number of an event is its place in the example, where the two creations are 0 and 1.
"""

from __future__ import annotations

import pytest

from headrace.fold import combine, fold
from headrace.model.schema import KeyCheck
from headrace.testing.notation import change_batch, parse_history, table_of
from tests.fold.test_effects import CDAP_KEYED
from tests.requirements import req

# The source sends the row before a change as a whole or its key alone: the same rows have to come of both.
KEYS_ALONE = CDAP_KEYED.replace("-U(0,alice)", "-U(0)").replace("-D(2,alice)", "-D(2)")


def events(history: str) -> list[str]:
    """Return the example's change events; the first has the number 2."""
    return [event.strip() for event in history.split("|")]


@req("C41")
@pytest.mark.parametrize("history", [CDAP_KEYED, KEYS_ALONE], ids=["whole rows", "keys alone"])
def test_the_last_change_of_each_key_is_the_designs(history: str) -> None:
    """Events 5 (delete of 2), 6 (insert of 0) and 8 (update of 1), and no other event, say what the keys hold."""
    schema = table_of(2)
    numbered = dict(enumerate(events(history), 2))
    assert len(numbered) == 7
    folded = fold(schema, [parse_history(history).batch(schema)]).to_pylist()
    shown = sorted((row["k"], row["_effect"], row["c1"]) for row in folded)
    assert shown == [(0, "ROW", "Alice"), (1, "ROW", "Bob"), (2, "DEAD", None)]
    assert not any(row["_missing"] for row in folded)
    last = " | ".join(numbered[number] for number in (5, 6, 8))
    alone = fold(schema, [parse_history(last).batch(schema)]).to_pylist()
    assert sorted((row["k"], row["_effect"], row["c1"]) for row in alone) == shown


@req("C47")
def test_the_difference_without_a_key_is_the_designs() -> None:
    """Of nine events only number 4 is left, the insert of Bob; the design's other one, the delete of a row that the
    batch itself had brought, is nothing to do for a target that counts."""
    schema = table_of(1, check=KeyCheck.NONE)
    alice, bob, alyce, other = 1, 2, 3, 4
    history = (
        f"+I({alice}) | +I({alice}) | +I({bob}) | -U({alice}) +U({alyce}) | -U({alice}) +U({alyce}) | "
        f"-U({alyce}) +U({other}) | -U({alyce}) +U({other}) | -D({other}) | -D({other})"
    )
    numbered = dict(enumerate(events(history), 2))
    assert max(numbered) == 10
    parts = [
        fold(schema, [change_batch(schema, parse_history(event, scn).rows)])
        for scn, event in numbered.items()
    ]
    whole = fold(schema, [parse_history(history).batch(schema)])
    assert [(row["_effect"], row["k"], row["_count"]) for row in whole.to_pylist()] == [
        ("NET", bob, 1)
    ]
    assert whole.to_pylist() == parts[4 - 2].to_pylist()
    # Up to number 9 one Alice is still there, which number 10 takes away.
    combined = parts[0]
    for part in parts[1:-1]:
        combined = combine(schema, combined, part)
    left = {row["k"]: row["_count"] for row in combined.to_pylist()}
    assert left == {bob: 1, other: 1}
    combined = combine(schema, combined, parts[-1])
    assert {row["k"]: row["_count"] for row in combined.to_pylist()} == {bob: 1}
