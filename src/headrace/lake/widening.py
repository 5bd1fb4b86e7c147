"""Which types a column may take without any value being written anew, exactly.

Source: Delta protocol, "Type Widening".
"""

from __future__ import annotations

import pyarrow as pa

from headrace.model.schema import TableSchema, render_type

__all__ = ["WIDENING", "can_widen", "follows"]

_INTEGERS = {"int16": 5, "int32": 10, "int64": 20}
"""Decimal digits that hold every value of an integer type, as Delta counts them."""

WIDENING = frozenset(
    {
        ("int16", "int32"),
        ("int16", "int64"),
        ("int32", "int64"),
        ("int16", "float64"),
        ("int32", "float64"),
        ("float32", "float64"),
        ("date", "timestamp"),
        ("int16", "decimal"),
        ("int32", "decimal"),
        ("int64", "decimal"),
        ("decimal", "decimal"),
    }
)


def can_widen(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether Delta turns a column of ``old`` into ``new`` without rewriting it, exactly."""
    before, after = render_type(old), render_type(new)
    if pa.types.is_decimal128(new):
        whole = new.precision - new.scale
        if pa.types.is_decimal128(old):
            return bool(new.scale >= old.scale and whole >= old.precision - old.scale)
        return bool(whole >= max(_INTEGERS.get(before, 99), 10))
    return (before, after) in WIDENING


def follows(old: TableSchema, new: TableSchema) -> bool:
    """Whether ``new`` has every column of ``old``, in the same or a wider type."""
    after = {column.name: column.type for column in new.columns}
    return all(
        column.name in after
        and (column.type == after[column.name] or can_widen(column.type, after[column.name]))
        for column in old.columns
    )
