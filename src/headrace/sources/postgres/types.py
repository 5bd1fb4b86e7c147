"""Which Arrow type holds a PostgreSQL type exactly; text where none does."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

__all__ = ["ResolvedType", "arrow_type"]

_NUMERIC = 1700

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
    """

    arrow: pa.DataType
    name: str


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
