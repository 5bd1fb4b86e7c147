"""The language of conditions: whatever the text, it is a condition or it is refused by name, and it reaches nothing."""

from __future__ import annotations

import ast
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace.wire.filters.language as language
from headrace.errors import BadFilter
from headrace.wire.filters import parse_filter
from headrace.wire.filters.language import MOST_CHARACTERS, MOST_DEPTH, parse_condition
from headrace.wire.filters.tree import And, Arithmetic, Comparison, Literal, Name, Not, Or
from tests.wire.filters.examples import WIDE, wide_block

WORDS = st.sampled_from(
    [
        *("and", "or", "not", "in", "between", "is", "null", "like", "true", "false", "date"),
        *("timestamp", "id", "name", "flag", '"a b"', "'x'", "''", "12", "1.5", "=", "<>", "!="),
        *("<", "<=", ">", ">=", "+", "-", "*", "(", ")", ",", ".", "%", ";", "[", "{", "'open"),
        *("__class__", "id.real", "import(", "lambda"),
    ]
)


def tree(text: str) -> object:
    return parse_condition(text, "where of public.t")


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.one_of(st.text(max_size=60), st.lists(WORDS, max_size=14).map(" ".join)))
def test_no_text_does_anything_but_read_or_be_refused(text):
    refused = refusal(text)
    assert refused is None or ("where of public.t" in refused.message and refused.next_step)


def refusal(text: str) -> BadFilter | None:
    """Return why a condition is refused when it is read, or met a block; None when it is not."""
    try:
        bound = parse_filter({"where": {"public.t": text}}).bound(lambda _: WIDE)
        bound.apply(wide_block(random.Random(0), 20))
    except BadFilter as error:
        return error
    return None


REACHING = [
    "id.real = 1",
    "id.__class__ is null",
    "len(name) = 1",
    "__import__('os') is null",
    "name[0] = 'a'",
    "(lambda: 1) = 1",
    "id = 1; drop table t",
    "exec('1')",
    "{} = {}",
    "`id` = 1",
    "name like name",
    "id in (id)",
    "id in (select 1)",
]


@pytest.mark.parametrize("text", REACHING)
def test_nothing_of_python_can_be_reached(text):
    with pytest.raises(BadFilter, match=r"where of public\.t, character \d+"):
        tree(text)


def test_the_words_of_python_are_names_of_columns_like_any_other():
    bound = parse_filter({"where": {"public.t": "__class__ is null"}}).bound(lambda _: WIDE)
    with pytest.raises(BadFilter, match="there is no column __class__"):
        bound.apply(wide_block(random.Random(0), 2))


def test_no_code_of_filters_evaluates_text():
    forbidden = {"eval", "exec", "compile", "getattr", "__import__", "globals", "setattr"}
    for path in Path(language.__file__).parent.glob("*.py"):
        calls = {
            node.func.id
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert not calls & forbidden, path.name


def test_precedence_is_that_of_sql():
    assert tree("a or b and not c = d + e * f") == Or(
        (
            Name("a", 1),
            And(
                (
                    Name("b", 6),
                    Not(
                        Comparison(
                            "=",
                            Name("c", 16),
                            Arithmetic(
                                "+",
                                Name("d", 20),
                                Arithmetic("*", Name("e", 24), Name("f", 28), 26),
                                22,
                            ),
                            18,
                        ),
                        12,
                    ),
                ),
                6,
            ),
        ),
        1,
    )


LITERALS = [
    ("12", 12),
    ("-12", -12),
    ("1.50", Decimal("1.50")),
    ("'it''s'", "it's"),
    ("TRUE", True),
    ("Null", None),
    ("date '2024-02-29'", date(2024, 2, 29)),
    ("timestamp '2024-01-01 13:00+01:00'", datetime(2024, 1, 1, 12, tzinfo=UTC)),
]


@pytest.mark.parametrize(("text", "value"), LITERALS)
def test_a_literal_has_its_value(text, value):
    found = tree(text)
    assert isinstance(found, Literal)
    assert (found.value, type(found.value)) == (value, type(value))


def test_a_quoted_name_may_be_anything():
    assert tree('"a ""b"" c" = 1') == Comparison("=", Name('a "b" c', 1), Literal(1, 15), 13)


PLACES = [
    ("", 1, "ends too early"),
    ("id =", 5, "ends too early"),
    ("id = 1 id", 8, "ends before this"),
    ("id = 'open", 6, "a quote is not closed"),
    ("id # 1", 4, "no token"),
    ("(id = 1", 8, r"\) is expected"),
    ("id is 1", 7, "null is expected"),
    ("id not 1", 8, "in, between or like"),
    ("id between 1 or 2", 14, "and is expected"),
    ("id in (1, id)", 11, "literals only"),
    ("name like 1", 11, "text literal"),
    (r"name like 'a\'", 11, "escape"),
    ("day = date '2024-02-30'", 12, "no date"),
    ("day = date 1", 12, "a text is expected"),
    ("id = " + "9" * 39, 6, "38 digits"),
    ("id = '\ud800'", 7, "no Unicode"),
    ("1 < 2 < 3", 7, "ends before this"),
]


@pytest.mark.parametrize(("text", "at", "what"), PLACES)
def test_an_error_names_the_character_and_what_is_wrong(text, at, what):
    with pytest.raises(BadFilter, match=f"character {at}: .*{what}") as raised:
        tree(text)
    assert "999" not in raised.value.message, "a literal may be somebody's name or number"


def test_length_and_depth_are_bounded():
    with pytest.raises(BadFilter, match="characters"):
        tree("a" * (MOST_CHARACTERS + 1))
    for deep in (
        "(" * 2_000 + "id" + ")" * 2_000,
        "not " * 1_000 + "flag",
        "- " * 2_000 + "id",
        "id = " + "+".join(["1"] * 2_000),
        "id = " + "(" * 30 + "+1" * 30 + ")" * 30,
        "((" * 20 + "1" + ("+1" * 30 + ")*1" + ")") * 20 + " = 1",
    ):
        with pytest.raises(BadFilter):
            tree(deep)
    wide = " or ".join(["id=1"] * 400)
    tree(wide)
    tree("(" * (MOST_DEPTH - 1) + "flag" + ")" * (MOST_DEPTH - 1))


def test_a_pattern_that_is_too_large_is_refused():
    text = "name like '" + "%_" * 2_000 + "'"
    refused = refusal(text)
    assert refused is None or "pattern" in refused.message
