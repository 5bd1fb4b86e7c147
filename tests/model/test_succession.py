"""Which column is which after a change of a table's shape."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.succession import column_number, successors, told_numbers
from tests.requirements import req


@req("C30")
@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        ("a1 b2", "a1 b2", {"a": "a", "b": "b"}),
        ("a1 b2", "a1 b2 c3", {"a": "a", "b": "b"}),
        ("a1 b2", "a1", {"a": "a"}),
        ("a1 b2", "a1 x2", {"a": "a", "b": "x"}),
        ("a1 b2", "a1 x3", {"a": "a"}),
        ("a1 b2", "b1 a2", {"a": "b", "b": "a"}),
        # One takes the name of another that went.
        ("a1 b2", "b1", {"a": "b"}),
        ("a1 b2", "a1 b3", {"a": "a"}),
        # Without numbers a name stands for itself …
        ("a b", "a b c", {"a": "a", "b": "b"}),
        ("a b", "b", {"b": "b"}),
        ("a b", "a1 b2", {"a": "a", "b": "b"}),
        ("a1 b2", "a b", {"a": "a", "b": "b"}),
        # … and nobody can tell a rename from a drop.
        ("a b", "a x", None),
        ("a1 b2", "a x", None),
        ("a b", "a1 x2", None),
        ("a1 b2", "b a", None),
        # Where columns are numbered, names that change places are other columns' names.
        ("a b", "b1 a2", None),
        # Another table has the name now: nothing was renamed, and nothing has to be told apart.
        ("a65537 b65538", "b131073 a131074 c131075", {"a": "a", "b": "b"}),
        ("a65537 b65538", "a131073 c131074", {"a": "a"}),
        # A name that a number has claimed stands for nothing else.
        ("a b2", "a2", {"b": "a"}),
    ],
)
def test_columns_live_on_by_number_and_else_by_name(
    was: str, now: str, expected: dict[str, str] | None
) -> None:
    def read(text: str) -> tuple[list[str], dict[str, int]]:
        cells = text.split()
        return [cell[0] for cell in cells], {c[0]: int(c[1:]) for c in cells if c[1:]}

    (old, was_numbers), (new, now_numbers) = read(was), read(now)
    assert successors(old, new, was_numbers, now_numbers) == expected


@given(st.data())
def test_known_numbers_find_exactly_the_columns_that_live_on(data: st.DataObject) -> None:
    old = data.draw(st.permutations("abcdef"))[: data.draw(st.integers(1, 6))]
    was = {name: number for number, name in enumerate(old)}
    kept = data.draw(st.lists(st.sampled_from(range(len(old))), unique=True))
    fresh = [*range(100, 100 + data.draw(st.integers(0, 6 - len(kept))))]
    now = dict(zip(data.draw(st.permutations("abcdef")), [*kept, *fresh], strict=False))
    names = {number: name for name, number in now.items()}
    expected = {name: names[number] for name, number in was.items() if number in kept}
    assert successors(old, [*now], was, now) == expected


def test_a_column_has_a_number_of_its_own() -> None:
    assert column_number(1, 1) == 65_537
    assert column_number(4_294_967_295, 1_600) < 2**53


def test_a_schema_event_tells_of_two_versions() -> None:
    before = {"schema_id": 1, "numbers": {"a": 1}}
    told = told_numbers({"schema_id": 2, "numbers": {"b": 1}, "was": before})
    assert told == {1: {"a": 1}, 2: {"b": 1}}
    assert told_numbers({"schema_id": 2}) == {}
