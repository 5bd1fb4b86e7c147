"""Conditions: a filter chooses the rows that a plain look at each row chooses, and says what became of them."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

from headrace.errors import BadFilter
from headrace.model.schema import TableSchema
from headrace.wire.filters import parse_filter
from tests.requirements import req
from tests.wire.filters.conditions import Asked, random_condition
from tests.wire.filters.examples import UNSENT, WIDE, block_of, rows_in, table, wide_block

Row = tuple[int, int, str, tuple[Any, ...]]


def left_of(rows: list[Row], schema: TableSchema, asked: Asked) -> list[Row]:
    """Return what a filter leaves, one change after the other."""
    left: list[Row] = []
    at = 0
    while at < len(rows):
        scn, order, op, cells = rows[at]
        if op == "-U":
            old, new = cells, filled(cells, rows[at + 1][3])
            shown = [meets(schema, asked, old), meets(schema, asked, new)]
            whole = UNSENT not in new
            if shown[0]:
                left.append((scn, order, "-U" if shown[1] else "-D", old))
            if shown[1]:
                left.append((scn, order + 1, "+U" if shown[0] else "+I" if whole else "=U", new))
            at += 2
            continue
        if meets(schema, asked, cells):
            left.append((scn, order, op, cells))
        elif op == "=U" and not asked.columns <= set(schema.key):
            gone = (
                c if n in schema.key else UNSENT for n, c in zip(schema.names, cells, strict=True)
            )
            left.append((scn, order, "-D", tuple(gone)))
        at += 1
    return left


def filled(old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(o if n is UNSENT else n for o, n in zip(old, new, strict=True))


def meets(schema: TableSchema, asked: Asked, cells: tuple[Any, ...]) -> bool:
    return asked.meets(dict(zip(schema.names, cells, strict=True))) in (True, UNSENT)


def same(left: list[Row], right: list[Row]) -> bool:
    """Return whether rows are equal; NaN is."""
    return repr(left) == repr(right)


@req("B-9")
def test_a_filter_at_the_server_is_a_filter_at_the_client():
    rng = random.Random(6)
    seen: Counter[str] = Counter()
    for _ in range(250):
        block = wide_block(rng, 60)
        asked = random_condition(rng, WIDE)
        bound = parse_filter({"where": {"public.t": asked.text}}).bound(lambda _: WIDE)
        whole = rows_in(block, WIDE)
        expected = left_of([(s, o, p, c) for s, o, p, c in whole], WIDE, asked)
        found = rows_in(bound.apply(block), WIDE)
        assert same(found, expected), asked.text
        seen.update(op for _, _, op, _ in found)
        seen["left out"] += len(whole) - len(found)
    assert min(seen[op] for op in ("+I", "+R", "-D", "=U", "-U", "+U", "left out")) > 60, seen


CASES = [
    ("id = 1", "an integer"),
    ("price * price * 1.5 > 0", "decimals need no rounding"),
    ("big * big >= 0", "a product beyond 64 bits"),
    ("real = 0.1", "a literal is 64 bits wide"),
    ("null", "null is not true"),
    ("not null", "nor is its contrary"),
    ("1 = 1", "literals alone"),
    ("name in ('a', null)", "null in a list"),
    ("(id > 3) = flag", "a condition as a value"),
]


@pytest.mark.parametrize(("text", "why"), CASES)
def test_a_condition_on_a_block_without_rows_or_nulls_answers(text, why):
    bound = parse_filter({"where": {"public.t": text}}).bound(lambda _: WIDE)
    empty = block_of(WIDE, [])
    assert bound.apply(empty) is empty, why
    rng = random.Random(1)
    bound.apply(wide_block(rng, 50))


def test_integers_multiply_beyond_64_bits_without_a_wrong_answer():
    rows = [(1, 0, "+I", (k, *[None] * 3, v, *[None] * 9)) for k, v in ((1, 2**62), (2, -(2**62)))]
    bound = parse_filter({"where": {"public.t": "big * 4 > 0"}}).bound(lambda _: WIDE)
    assert [cells[0] for *_, cells in rows_in(bound.apply(block_of(WIDE, rows)), WIDE)] == [1]


def test_a_whole_number_beyond_53_bits_is_not_its_neighbour():
    rows = [(1, 0, "+I", (2**53 + step, *[None] * 13)) for step in (0, 1)]
    bound = parse_filter({"where": {"public.t": "id = 9007199254740993"}}).bound(lambda _: WIDE)
    assert [cells[0] for *_, cells in rows_in(bound.apply(block_of(WIDE, rows)), WIDE)] == [
        2**53 + 1
    ]


def test_a_decimal_becomes_the_nearest_float():
    rng = random.Random(2)
    for _ in range(40):
        text = f"{rng.randrange(10**18)}.{rng.randrange(10**10):010d}"
        price = Decimal(rng.randrange(10**9)).scaleb(-2)
        row: list[Any] = [None] * 14
        row[0], row[6], row[13] = 1, float(text), price
        block = block_of(WIDE, [(1, 0, "+I", tuple(row))])
        for condition in (f"double = {text}", f"price + 0 * double = {float(price)!r}"):
            bound = parse_filter({"where": {"public.t": condition}}).bound(lambda _: WIDE)
            assert bound.apply(block) is block, condition


UNFIT = [
    ("colour = 1", "there is no column colour"),
    ("id = 'a'", "does not compare"),
    ("name > 1", "does not compare"),
    ("day = '2024-01-01'", "does not compare"),
    ("local = timestamp '2024-01-01T00:00Z'", "does not compare"),
    ("name + 1 > 0", "arithmetic"),
    ("id", "a condition is expected"),
    ("id and flag", "a condition is expected"),
    ("(id > 1) + 1 > 0", "a value is expected"),
    ("(id > 1) > flag", "= and <> alone"),
    ("id like 'a'", "like is for text"),
    ("big * big * big * big > 0", "digits"),
]


@pytest.mark.parametrize(("text", "what"), UNFIT)
def test_what_does_not_fit_a_table_names_table_and_place(text, what):
    bound = parse_filter({"where": {"public.t": text}}).bound(lambda _: WIDE)
    with pytest.raises(BadFilter, match=what) as raised:
        bound.apply(wide_block(random.Random(0), 3))
    assert "public.t" in raised.value.message
    assert "character" in raised.value.message
    assert raised.value.next_step


def test_a_condition_is_asked_of_its_own_table_alone():
    other = table({"id": "int64"}, ["id"], name="other")
    block = block_of(other, [(1, 0, "+I", (1,))])
    bound = parse_filter({"where": {"public.t": "colour = 1"}}).bound(lambda _: other)
    assert bound.apply(block) is block
