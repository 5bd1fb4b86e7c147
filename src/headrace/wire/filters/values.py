"""The values in a condition: columns, literals and arithmetic, resolved for one table version.

Integers and decimals are exact: arithmetic has as many digits as it needs, and a sum that would need more than
Arrow's 76 is refused when it is bound, never when a row comes. Where a float takes part all is 64-bit floats. Nothing
else is converted: text is compared with text, dates with dates.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import BadFilter
from headrace.model.schema import TableSchema, render_type
from headrace.wire.filters.faults import bad_filter
from headrace.wire.filters.tree import Arithmetic, Literal, Name, Negative, Node, Value

__all__ = [
    "NOTHING",
    "Bools",
    "Cells",
    "Place",
    "Rows",
    "ValueNode",
    "bind_value",
    "cast",
    "common_type",
    "either_unsent",
    "is_number",
    "null_for_sure",
    "refused",
]

Bools: TypeAlias = npt.NDArray[np.bool_]
NOTHING = pa.null()
"""The type of the literal ``null``, and of what is computed from it."""

_MOST_DIGITS = 76
_INTEGER_DIGITS = {pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_COMPUTE = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}


class Rows(NamedTuple):
    """Change rows of one table version.

    Attributes:
        batch: of `headrace.model.change`.
        missing: rows × columns, true where not sent; None when all was.
    """

    batch: pa.RecordBatch
    missing: Bools | None


class Cells(NamedTuple):
    """One value per row.

    Attributes:
        values: an array, or a scalar that stands for all rows; null where a value is null or unknown.
        unsent: true where the value is unknown because a column was not sent; None when it is nowhere.
    """

    values: pa.Array | pa.Scalar
    unsent: Bools | None


class Place(NamedTuple):
    """Where in a filter, of which table version: what errors name.

    Attributes:
        part: of the filter.
        schema: the version.
    """

    part: str
    schema: TableSchema


def refused(place: Place, at: int, what: str) -> BadFilter:
    """Return the error for a condition that does not fit the table."""
    return bad_filter(f"{place.part}, character {at}", f"{place.schema.table}: {what}")


class ValueNode(Protocol):
    """A value, resolved.

    Attributes:
        type: of its cells.
        columns: that it is made of.
    """

    type: pa.DataType
    columns: frozenset[str]

    def cells(self, rows: Rows) -> Cells:
        """Return the value of each row."""
        ...


class Column:
    """The cells of a column."""

    def __init__(self, name: str, index: int, type_: pa.DataType) -> None:
        self.type = type_
        self.columns: frozenset[str] = frozenset([name])
        self._name, self._index = name, index

    def cells(self, rows: Rows) -> Cells:
        """Return the column's cells."""
        unsent = rows.missing[:, self._index] if rows.missing is not None else None
        return Cells(rows.batch.column(self._name), unsent)


class Constant:
    """A literal."""

    def __init__(self, scalar: pa.Scalar) -> None:
        self.type = scalar.type
        self.columns: frozenset[str] = frozenset()
        self._scalar = scalar

    def cells(self, rows: Rows) -> Cells:
        """Return the literal for all rows."""
        del rows
        return Cells(self._scalar, None)


class Computed:
    """``left op right`` in a type that holds every result."""

    def __init__(
        self,
        op: str,
        operands: tuple[ValueNode, ValueNode],
        types: tuple[pa.DataType, pa.DataType],
        type_: pa.DataType,
    ) -> None:
        self.type = type_
        self.columns: frozenset[str] = operands[0].columns | operands[1].columns
        self._compute, self._operands, self._types = _COMPUTE[op], operands, types

    def cells(self, rows: Rows) -> Cells:
        """Return the results; null as soon as one operand is null for sure."""
        left, right = (operand.cells(rows) for operand in self._operands)
        values = self._compute(
            cast(left.values, self._types[0]), cast(right.values, self._types[1])
        )
        return Cells(values, either_unsent(left, right))


def bind_value(node: Node, place: Place) -> ValueNode:
    """Return the value that a node stands for.

    Raises:
        BadFilter: it is none, or does not fit the table.
    """
    if isinstance(node, Name):
        return _column(node, place)
    if isinstance(node, Literal):
        return Constant(_scalar(node.value))
    if isinstance(node, Negative):
        zero = Literal(0, node.at)
        return _computed(
            "-", (bind_value(zero, place), bind_value(node.operand, place)), node.at, place
        )
    if isinstance(node, Arithmetic):
        operands = (bind_value(node.left, place), bind_value(node.right, place))
        return _computed(node.op, operands, node.at, place)
    raise refused(place, node.at, "a statement stands where a value is expected")


def _column(node: Name, place: Place) -> Column:
    names = place.schema.names
    if node.name not in names:
        raise refused(place, node.at, f"there is no column {node.name}")
    index = names.index(node.name)
    return Column(node.name, index, place.schema.columns[index].type)


def _scalar(value: Value) -> pa.Scalar:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return pa.scalar(value)
    if isinstance(value, datetime):
        return pa.scalar(value, pa.timestamp("us", tz="UTC" if value.tzinfo else None))
    if isinstance(value, date):
        return pa.scalar(value, pa.date32())
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return pa.scalar(value, pa.int64())
    _, digits, exponent = Decimal(value).as_tuple()
    scale = -int(exponent)
    return pa.scalar(Decimal(value), pa.decimal256(max(len(digits), scale), scale))


def _computed(
    op: str, operands: tuple[ValueNode, ValueNode], at: int, place: Place
) -> Computed | Constant:
    types = operands[0].type, operands[1].type
    for type_ in types:
        if not (is_number(type_) or type_ == NOTHING):
            raise refused(place, at, f"{_called(type_)} takes no part in arithmetic")
    if NOTHING in types:
        return Constant(_scalar(None))
    if any(pa.types.is_floating(type_) for type_ in types):
        both = pa.float64()
        return Computed(op, operands, (both, both), both)
    left, right = _exact(types[0]), _exact(types[1])
    if op == "*":
        digits, scale = left.precision + right.precision + 1, left.scale + right.scale
    else:
        scale = max(left.scale, right.scale)
        digits = max(left.precision - left.scale, right.precision - right.scale) + scale + 1
    if digits > _MOST_DIGITS:
        raise refused(place, at, f"the result may have {digits} digits, more than {_MOST_DIGITS}")
    return Computed(op, operands, (left, right), pa.decimal256(digits, scale))


def common_type(left: ValueNode, right: ValueNode, at: int, place: Place) -> pa.DataType:
    """Return the type in which two values compare exactly; `NOTHING` when one is the literal null.

    Raises:
        BadFilter: they do not compare.
    """
    one, other = left.type, right.type
    if NOTHING in (one, other):
        return NOTHING
    if one == other and not pa.types.is_floating(one):
        return one
    if not (is_number(one) and is_number(other)):
        raise refused(place, at, f"{_called(one)} does not compare with {_called(other)}")
    if pa.types.is_floating(one) or pa.types.is_floating(other):
        return pa.float64()
    if pa.types.is_integer(one) and pa.types.is_integer(other):
        return pa.int64()
    exact = _exact(one), _exact(other)
    scale = max(type_.scale for type_ in exact)
    digits = max(type_.precision - type_.scale for type_ in exact) + scale
    if digits > _MOST_DIGITS:
        raise refused(place, at, f"to compare them takes {digits} digits, more than {_MOST_DIGITS}")
    return pa.decimal256(digits, scale)


def cast(values: pa.Array | pa.Scalar, type_: pa.DataType) -> pa.Array | pa.Scalar:
    """Return values in a wider type; a number becomes the nearest float."""
    if values.type == type_:
        return values
    if pa.types.is_decimal(values.type) and pa.types.is_floating(type_):
        # Straight from a decimal Arrow often gives the float beside the nearest one.
        values = pc.cast(values, pa.string())
    return pc.cast(values, type_, safe=False)


def is_number(type_: pa.DataType) -> bool:
    """Return whether values of the type take part in arithmetic."""
    return bool(
        pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
    )


def _exact(type_: pa.DataType) -> pa.DataType:
    """Return the decimal that holds every value of an integer or decimal type."""
    if pa.types.is_integer(type_):
        return pa.decimal256(_INTEGER_DIGITS[type_], 0)
    return pa.decimal256(type_.precision, type_.scale)


def _called(type_: pa.DataType) -> str:
    """Return how people call a type."""
    if pa.types.is_decimal256(type_):
        return "a decimal"
    return "a value of type " + render_type(type_)


def either_unsent(left: Cells, right: Cells) -> Bools | None:
    """Return where what is made of two values is unknown: one was not sent, and none is null for sure."""
    if left.unsent is None and right.unsent is None:
        return None
    unsent = _unsent(left) | _unsent(right)
    return np.asarray(unsent & ~null_for_sure(left) & ~null_for_sure(right))


def null_for_sure(cells: Cells) -> Bools:
    """Return where a value is null, and was sent."""
    if isinstance(cells.values, pa.Scalar):
        return np.asarray(not cells.values.is_valid)
    null = np.asarray(cells.values.is_null())
    return null if cells.unsent is None else null & ~cells.unsent


def _unsent(cells: Cells) -> Bools:
    return np.asarray(False) if cells.unsent is None else cells.unsent
