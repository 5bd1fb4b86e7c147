"""Which Arrow type holds a PostgreSQL type exactly, text where none does; and how its binary form is read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa

__all__ = ["Form", "ResolvedType", "arrow_type", "binary_form"]

_NUMERIC = 1700


class Form(IntEnum):
    """How the binary form of a column's values is read; `_native` has the same numbers."""

    PLAIN = 0
    """By its Arrow type; what is text, or a label, is text."""
    NUMERIC = 1
    """Digits of base 10,000, of which decimal or text is made."""
    UUID = 2
    JSONB = 3
    OID = 4
    """32 bits without a sign, of which text is made."""
    TIME = 5
    """Microseconds since midnight, of which text is made."""
    SKIPPED = 6
    """Not at all: the column is left out, and an empty text stands for it."""
    UNKNOWN = 7
    """Only its text is known."""


_FORMS: dict[int, Form] = {
    26: Form.OID,
    28: Form.OID,
    29: Form.OID,
    1083: Form.TIME,
    _NUMERIC: Form.NUMERIC,
    2950: Form.UUID,
    3802: Form.JSONB,
}

_BY_OID: dict[int, pa.DataType] = {
    16: pa.bool_(),
    17: pa.binary(),
    20: pa.int64(),
    21: pa.int16(),
    23: pa.int32(),
    700: pa.float32(),
    701: pa.float64(),
    1082: pa.date32(),
    1114: pa.timestamp("us"),
    1184: pa.timestamp("us", tz="UTC"),
}


@dataclass(frozen=True, slots=True)
class ResolvedType:
    """A type as the catalog explains it: domains followed to their base.

    Attributes:
        arrow: what holds its values.
        name: the source's own name with modifier, as a cast takes it.
        form: how its binary form is read.
        gone: whether it was dropped before anybody asked, so that nothing is known of it.
    """

    arrow: pa.DataType
    name: str
    form: Form = Form.UNKNOWN
    gone: bool = False

    def as_text(self) -> ResolvedType:
        """Return the type with its values kept as the server renders them."""
        if pa.types.is_string(self.arrow):
            return self
        form = self.form if self.form is Form.NUMERIC else Form.UNKNOWN
        return ResolvedType(pa.string(), self.name, form)


def arrow_type(base_oid: int, modifier: int) -> pa.DataType:
    """Return the Arrow type for a built-in type and its modifier (−1: none).

    A numeric without modifier has no fixed scale, and one beyond 38 digits or with a scale outside its
    precision has no decimal: both stay text.
    """
    if base_oid != _NUMERIC:
        return _BY_OID.get(base_oid, pa.string())
    if modifier < 4:
        return pa.string()
    precision = (modifier - 4) >> 16 & 0xFFFF
    scale = ((modifier - 4 & 0x7FF) ^ 0x400) - 0x400
    if 1 <= precision <= 38 and 0 <= scale <= precision:
        return pa.decimal128(precision, scale)
    return pa.string()


def binary_form(base_oid: int, *, textual: bool) -> Form:
    """Return how the binary form of a type's values is read.

    Args:
        base_oid: the type, domains followed to their base.
        textual: whether its binary form is its text, as the server's own functions for it say.
    """
    if base_oid in _BY_OID or textual:
        return Form.PLAIN
    return _FORMS.get(base_oid, Form.UNKNOWN)
