"""Conditions, resolved for one table version and asked of whole batches.

SQL's three values and a fourth: a statement about a row is true, false, null, or *unsent*: it could be any of them,
because a column was not sent. Unsent is not null: null is an answer. A statement is unsent only where no answer to the
open question would change nothing: ``false and unsent`` is false.

Floats compare as PostgreSQL does: NaN equals itself and is above all others. Text compares by its bytes in UTF-8.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.schema import TableSchema
from headrace.wire.filters.tree import And, Comparison, In, IsNull, Like, Node, Not, Or, Value
from headrace.wire.filters.values import (
    NOTHING,
    Bools,
    Place,
    Rows,
    ValueNode,
    bind_value,
    cast,
    common_type,
    either_unsent,
    null_for_sure,
    refused,
)

__all__ = ["Condition", "Rows", "bind_condition"]

_COMPARE = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


class Truth(NamedTuple):
    """What is known of a statement, per row; null where none of the three holds."""

    true: Bools
    false: Bools
    unsent: Bools

    @property
    def null(self) -> Bools:
        """Return where the answer is null."""
        return ~(self.true | self.false | self.unsent)


class Statement(Protocol):
    """A statement, resolved; ``columns`` are those that it speaks of."""

    columns: frozenset[str]

    def truth(self, rows: Rows) -> Truth:
        """Return what is known of it."""
        ...


class Condition:
    """A condition on the rows of one table version.

    Attributes:
        columns: that it speaks of.
    """

    def __init__(self, statement: Statement) -> None:
        self.columns = statement.columns
        self._statement = statement

    def may_hold(self, rows: Rows) -> Bools:
        """Return which rows meet the condition, or might if all of them had been sent."""
        truth = self._statement.truth(rows)
        return truth.true | truth.unsent


def bind_condition(node: Node, schema: TableSchema, part: str) -> Condition:
    """Return the condition that a tree is on a table.

    Args:
        node: the tree.
        schema: the table's version.
        part: of the filter, for the error.

    Raises:
        BadFilter: a column or a type does not fit; names table, column and character.
    """
    return Condition(_bind(node, Place(part, schema)))


class _Stated:
    """A boolean column or literal."""

    def __init__(self, value: ValueNode) -> None:
        self.columns = value.columns
        self._value = value

    def truth(self, rows: Rows) -> Truth:
        cells = self._value.cells(rows)
        return _answer(cast(cells.values, pa.bool_()), cells.unsent, rows)


class _Compared:
    """``left op right`` of values."""

    def __init__(self, op: str, left: ValueNode, right: ValueNode, type_: pa.DataType) -> None:
        self.columns = left.columns | right.columns
        self._op, self._left, self._right, self._type = op, left, right, type_

    def truth(self, rows: Rows) -> Truth:
        left, right = self._left.cells(rows), self._right.cells(rows)
        unsent = either_unsent(left, right)
        if self._type == NOTHING:
            return _answer(pa.scalar(None, pa.bool_()), unsent, rows)
        one, other = cast(left.values, self._type), cast(right.values, self._type)
        found = _COMPARE[self._op](one, other)
        if pa.types.is_floating(self._type):
            found = _with_nan(self._op, found, pc.is_nan(one), pc.is_nan(other))
        return _answer(found, unsent, rows)


def _with_nan(op: str, found: pa.Array, one: pa.Array, other: pa.Array) -> pa.Array:
    """Return a comparison of floats in which NaN equals itself and is above all others."""
    compare = _COMPARE[op]
    # Where either is NaN, being NaN itself compares as the values would.
    return pc.if_else(
        pc.or_(one, other), compare(pc.cast(one, "int8"), pc.cast(other, "int8")), found
    )


class _Same:
    """``left = right`` of statements."""

    def __init__(self, left: Statement, right: Statement) -> None:
        self.columns = left.columns | right.columns
        self._left, self._right = left, right

    def truth(self, rows: Rows) -> Truth:
        one, other = self._left.truth(rows), self._right.truth(rows)
        return Truth(
            one.true & other.true | one.false & other.false,
            one.true & other.false | one.false & other.true,
            (one.unsent | other.unsent) & ~one.null & ~other.null,
        )


class _OneOf:
    """``value in (…)`` for literals of one type, none of them null."""

    def __init__(self, value: ValueNode, items: pa.Array) -> None:
        self.columns = value.columns
        self._value, self._items = value, items

    def truth(self, rows: Rows) -> Truth:
        cells = self._value.cells(rows)
        values = cast(cells.values, self._items.type)
        found = pc.is_in(values, self._items)
        return _answer(pc.if_else(pc.is_valid(values), found, None), cells.unsent, rows)


class _Matched:
    """``value like pattern``; raises what Arrow has against the regular expression."""

    def __init__(self, value: ValueNode, pattern: str) -> None:
        self.columns = value.columns
        self._value, self._pattern = value, pattern
        pc.match_substring_regex(pa.array([], pa.string()), pattern)

    def truth(self, rows: Rows) -> Truth:
        cells = self._value.cells(rows)
        return _answer(pc.match_substring_regex(cells.values, self._pattern), cells.unsent, rows)


class _Null:
    """``value is null``."""

    def __init__(self, value: ValueNode) -> None:
        self.columns = value.columns
        self._value = value

    def truth(self, rows: Rows) -> Truth:
        cells = self._value.cells(rows)
        return _answer(_array(null_for_sure(cells), rows), cells.unsent, rows)


class _StatementNull:
    """``statement is null``."""

    def __init__(self, statement: Statement) -> None:
        self.columns = statement.columns
        self._statement = statement

    def truth(self, rows: Rows) -> Truth:
        truth = self._statement.truth(rows)
        return Truth(truth.null, truth.true | truth.false, truth.unsent)


class _Not:
    def __init__(self, statement: Statement) -> None:
        self.columns = statement.columns
        self._statement = statement

    def truth(self, rows: Rows) -> Truth:
        truth = self._statement.truth(rows)
        return Truth(truth.false, truth.true, truth.unsent)


class _All:
    """``part and part …``: one false part decides, then one unsent, then one null."""

    def __init__(self, parts: tuple[Statement, ...]) -> None:
        self.columns: frozenset[str] = frozenset().union(*(part.columns for part in parts))
        self._parts = parts

    def truth(self, rows: Rows) -> Truth:
        first, *others = self._parts
        true, false, unsent = first.truth(rows)
        for part in others:
            truth = part.truth(rows)
            true, false, unsent = true & truth.true, false | truth.false, unsent | truth.unsent
        return Truth(true, false, unsent & ~false)


def _bind(node: Node, place: Place) -> Statement:
    """Return the statement that a node makes."""
    if isinstance(node, And):
        return _All(tuple(_bind(part, place) for part in node.parts))
    if isinstance(node, Or):
        return _Not(_All(tuple(_Not(_bind(part, place)) for part in node.parts)))
    if isinstance(node, Not):
        return _Not(_bind(node.operand, place))
    if isinstance(node, Comparison):
        return _comparison(node, place)
    if isinstance(node, In):
        return _one_of(node, place)
    if isinstance(node, IsNull):
        if _is_statement(node.operand):
            return _StatementNull(_bind(node.operand, place))
        return _Null(bind_value(node.operand, place))
    if isinstance(node, Like):
        return _like(node, place)
    value = bind_value(node, place)
    if not (pa.types.is_boolean(value.type) or value.type == NOTHING):
        raise refused(place, node.at, "a condition is expected, not a value")
    return _Stated(value)


def _is_statement(node: Node) -> bool:
    return isinstance(node, And | Or | Not | Comparison | In | IsNull | Like)


def _comparison(node: Comparison, place: Place) -> Statement:
    if _is_statement(node.left) or _is_statement(node.right):
        if node.op not in ("=", "<>"):
            raise refused(place, node.at, "conditions compare with = and <> alone")
        same = _Same(_bind(node.left, place), _bind(node.right, place))
        return same if node.op == "=" else _Not(same)
    left, right = bind_value(node.left, place), bind_value(node.right, place)
    return _Compared(node.op, left, right, common_type(left, right, node.at, place))


def _one_of(node: In, place: Place) -> Statement:
    value = None if _is_statement(node.operand) else bind_value(node.operand, place)
    literals = [item.value for item in node.items]
    if value is not None and _is_plain(value.type, literals):
        return _OneOf(value, pa.array(literals))
    return _bind(
        Or(tuple(Comparison("=", node.operand, item, item.at) for item in node.items), node.at),
        place,
    )


def _is_plain(type_: pa.DataType, literals: list[Value]) -> bool:
    """Return whether the literals are texts for a text, or small integers for an integer."""
    if pa.types.is_string(type_):
        return all(isinstance(value, str) for value in literals)
    return pa.types.is_integer(type_) and all(
        type(value) is int and abs(value) < 2**63 for value in literals
    )


def _like(node: Like, place: Place) -> Statement:
    value = bind_value(node.operand, place)
    if not pa.types.is_string(value.type):
        raise refused(place, node.at, "like is for text")
    try:
        return _Matched(value, _regex(node.pattern))
    except pa.ArrowInvalid as error:
        raise refused(place, node.at, "the pattern is too large") from error


def _regex(pattern: str) -> str:
    """Return the regular expression of a pattern; the engine takes time in proportion to the text."""
    parts = []
    for found in re.finditer(r"\\(.)|(.)", pattern, re.DOTALL):
        special = {"%": ".*", "_": "."}.get(found[2] or "")
        parts.append(special or re.escape(found[1] or found[2]))
    return rf"(?s)\A{''.join(parts)}\z"


def _answer(found: pa.Array | pa.Scalar, unsent: Bools | None, rows: Rows) -> Truth:
    """Return the truth of boolean cells that are null where they are not known."""
    count = rows.batch.num_rows
    if isinstance(found, pa.Scalar):
        found = pa.array([found.as_py()] * count, pa.bool_())
    unknown = np.zeros(count, bool) if unsent is None else np.broadcast_to(unsent, count)
    true = np.asarray(pc.fill_null(found, False)) & ~unknown
    false = ~np.asarray(pc.fill_null(found, True)) & ~unknown
    return Truth(true, false, unknown)


def _array(flags: Bools, rows: Rows) -> pa.Array:
    return pa.array(np.broadcast_to(flags, rows.batch.num_rows))
