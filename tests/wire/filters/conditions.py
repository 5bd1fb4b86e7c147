"""Random conditions with what they mean: a text for the parser, and a function of one row in plain Python.

The second is the slow way on purpose: no Arrow, one cell at a time, its own three values and a half.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from headrace.model.schema import TableSchema
from tests.wire.filters.examples import UNSENT

__all__ = ["Asked", "random_condition"]

Row = dict[str, Any]
Cell = Callable[[Row], Any]
"""Returns a value, None for null, `UNSENT`; of a condition True, False, None or `UNSENT`."""

_NUMBERS = ("id", "small", "mid", "big", "real", "double", "price")
_KINDS = {"text": ("name", "note"), "day": ("day",), "local": ("local",), "instant": ("instant",)}
_LITERALS: dict[str, tuple[tuple[str, Any], ...]] = {
    "text": (("'a'", "a"), ("'paid'", "paid"), ("'o''k'", "o'k"), ("'Ü'", "Ü"), ("''", "")),
    "day": (("date '2024-02-29'", date(2024, 2, 29)), ("date '2000-01-01'", date(2000, 1, 1))),
    "local": (("timestamp '2024-01-01 12:00'", datetime.fromisoformat("2024-01-01T12:00")),),
    "instant": (
        ("timestamp '2024-01-01 13:00+01:00'", datetime.fromisoformat("2024-01-01T12:00+00:00")),
    ),
}
_LIKE = {
    "'a%'": "a.*",
    "'%b'": ".*b",
    "'a_b'": "a.b",
    r"'a\%b'": "a%b",
    "'%'": ".*",
    "'p%d'": "p.*d",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A condition as text and as a function; ``columns`` are those it names."""

    text: str
    meets: Cell
    columns: frozenset[str]


def random_condition(rng: random.Random, schema: TableSchema, depth: int = 3) -> Asked:
    """Return a condition on `tests.wire.filters.examples.WIDE`."""
    roll = rng.random()
    if depth and roll < 0.45:
        word = rng.choice(("and", "or"))
        parts = [random_condition(rng, schema, depth - 1) for _ in range(rng.choice((2, 3)))]
        decide = _all if word == "and" else _any
        meet = [part.meets for part in parts]
        return Asked(
            f" {word} ".join(f"({part.text})" for part in parts),
            lambda row: decide([ask(row) for ask in meet]),
            frozenset().union(*(part.columns for part in parts)),
        )
    if depth and roll < 0.55:
        inner = random_condition(rng, schema, depth - 1)
        return Asked(f"not ({inner.text})", lambda row: _not(inner.meets(row)), inner.columns)
    if depth and roll < 0.6:
        inner = random_condition(rng, schema, depth - 1)
        return Asked(
            f"({inner.text}) is null", lambda row: _is_null(inner.meets(row)), inner.columns
        )
    return rng.choice((_compared, _compared, _among, _between, _liked, _null, _flag))(rng, schema)


def _all(parts: list[Any]) -> Any:
    if False in parts:
        return False
    return UNSENT if UNSENT in parts else None if None in parts else True


def _any(parts: list[Any]) -> Any:
    if True in parts:
        return True
    return UNSENT if UNSENT in parts else None if None in parts else False


def _not(answer: Any) -> Any:
    return not answer if isinstance(answer, bool) else answer


def _is_null(answer: Any) -> Any:
    return UNSENT if answer is UNSENT else answer is None


def _compared(rng: random.Random, schema: TableSchema) -> Asked:
    del schema
    op = rng.choice(("=", "<>", "<", "<=", ">", ">="))
    kind = rng.choice(("number", "number", *_KINDS))
    left, right = _value(rng, kind, 2), _value(rng, kind, 1)
    return Asked(
        f"{left.text} {op} {right.text}",
        lambda row: _compare(op, left.meets(row), right.meets(row)),
        left.columns | right.columns,
    )


def _between(rng: random.Random, schema: TableSchema) -> Asked:
    del schema
    kind = rng.choice(("number", *_KINDS))
    value, low, high = _value(rng, kind, 1), _value(rng, kind, 0), _value(rng, kind, 0)
    negated = rng.random() < 0.5

    def between(row: Row) -> Any:
        cell = value.meets(row)
        answer = _all([_compare(">=", cell, low.meets(row)), _compare("<=", cell, high.meets(row))])
        return _not(answer) if negated else answer

    text = f"{value.text} {'not ' * negated}between {low.text} and {high.text}"
    return Asked(text, between, value.columns | low.columns | high.columns)


def _among(rng: random.Random, schema: TableSchema) -> Asked:
    del schema
    kind = rng.choice(("number", "text"))
    value = _value(rng, kind, 1)
    items = [_literal(rng, kind) for _ in range(rng.choice((1, 2, 4)))]
    if rng.random() < 0.2:
        items.append(Asked("null", lambda row: None, frozenset()))
    negated = rng.random() < 0.3

    def among(row: Row) -> Any:
        cell = value.meets(row)
        answer = _any([_compare("=", cell, item.meets(row)) for item in items])
        return _not(answer) if negated else answer

    text = f"{value.text} {'not ' * negated}in ({', '.join(item.text for item in items)})"
    return Asked(text, among, value.columns)


def _liked(rng: random.Random, schema: TableSchema) -> Asked:
    del schema
    name = rng.choice(_KINDS["text"])
    text, pattern = rng.choice(list(_LIKE.items()))

    def liked(row: Row) -> Any:
        cell = row[name]
        if cell is None or cell is UNSENT:
            return cell
        return re.fullmatch(pattern, cell, re.DOTALL) is not None

    return Asked(f"{name} like {text}", liked, frozenset([name]))


def _null(rng: random.Random, schema: TableSchema) -> Asked:
    name = rng.choice(schema.names)
    negated = rng.random() < 0.5

    def null(row: Row) -> Any:
        answer = _is_null(row[name])
        return _not(answer) if negated else answer

    return Asked(f"{name} is {'not ' * negated}null", null, frozenset([name]))


def _flag(rng: random.Random, schema: TableSchema) -> Asked:
    del schema
    text = rng.choice(("flag", "flag = true", "not flag", "flag <> true"))
    wanted = text in ("flag", "flag = true")

    def flag(row: Row) -> Any:
        return row["flag"] if wanted else _not(row["flag"])

    return Asked(text, flag, frozenset(["flag"]))


def _value(rng: random.Random, kind: str, depth: int) -> Asked:
    if kind == "number" and depth and rng.random() < 0.35:
        op = rng.choice("+-*")
        left, right = _value(rng, kind, depth - 1), _value(rng, kind, 0)
        return Asked(
            f"({left.text} {op} {right.text})",
            lambda row: _arithmetic(op, left.meets(row), right.meets(row)),
            left.columns | right.columns,
        )
    if rng.random() < 0.4:
        return _literal(rng, kind)
    name = rng.choice(_NUMBERS if kind == "number" else _KINDS[kind])
    return Asked(
        name if rng.random() < 0.8 else f'"{name}"', lambda row: row[name], frozenset([name])
    )


def _literal(rng: random.Random, kind: str) -> Asked:
    if kind == "number":
        text = rng.choice(("0", "3", "-7", "12.5", "0.1", "9007199254740993", str(10**20)))
        number: Any = Decimal(text) if "." in text else int(text)
        return Asked(text, lambda row: number, frozenset())
    text, value = rng.choice(_LITERALS[kind])
    return Asked(text, lambda row: value, frozenset())


def _unknown(left: Any, right: Any) -> tuple[bool, Any]:
    """Return whether two cells decide nothing, and what is the answer then."""
    if left is None or right is None:
        return True, None
    return (True, UNSENT) if UNSENT in (left, right) else (False, None)


def _arithmetic(op: str, left: Any, right: Any) -> Any:
    unknown, answer = _unknown(left, right)
    if unknown:
        return answer
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
    else:
        left, right = Fraction(left), Fraction(right)
    return {"+": left + right, "-": left - right, "*": left * right}[op]


def _compare(op: str, left: Any, right: Any) -> Any:
    unknown, answer = _unknown(left, right)
    if unknown:
        return answer
    if isinstance(left, float) or isinstance(right, float):
        left, right = _ordered(float(left)), _ordered(float(right))
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    return {
        "=": left == right,
        "<>": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[op]


def _ordered(number: float) -> tuple[bool, float]:
    return (True, 0.0) if math.isnan(number) else (False, number)
