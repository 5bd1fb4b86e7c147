"""Neutral column types and missing cells in Spark's terms.

Text in, SQL text out; nothing here needs a session.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pyarrow as pa

__all__ = [
    "is_sent",
    "mask_columns",
    "neutral_type",
    "null_safe",
    "quoted",
    "same_cell",
    "spark_ddl",
    "spark_type",
]

_SPARK: dict[pa.DataType, str] = {
    pa.bool_(): "BOOLEAN",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP",
}
_NEUTRAL = {name: type_ for type_, name in _SPARK.items()}


def spark_type(type_: pa.DataType) -> str:
    """Return the Spark SQL name of a neutral type."""
    if pa.types.is_decimal128(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    return _SPARK[type_]


def neutral_type(name: str) -> pa.DataType | None:
    """Return the neutral type with a Spark SQL name, None where there is none."""
    if match := re.fullmatch(r"decimal\((\d+),(\d+)\)", name):
        return pa.decimal128(int(match[1]), int(match[2]))
    return _NEUTRAL.get(name.upper())


def quoted(name: str) -> str:
    """Return a name as a Spark SQL identifier, whatever characters it has."""
    return f"`{name.replace('`', '``')}`"


def spark_ddl(fields: Iterable[pa.Field]) -> str:
    """Return ``name TYPE, …`` for a schema of neutral types."""
    return ", ".join(f"{quoted(field.name)} {spark_type(field.type)}" for field in fields)


def null_safe(left: str, right: str, names: Sequence[str], prefix: str = "") -> str:
    """Return the condition that two rows agree on the named columns, null agreeing with null.

    Args:
        left: alias of the one row.
        right: alias of the other.
        names: columns of both.
        prefix: put before the names of the right row's columns.
    """
    return " AND ".join(
        f"{left}.{quoted(name)} <=> {right}.{quoted(prefix + name)}" for name in names
    )


def same_cell(left: str, right: str, field: pa.Field) -> str:
    """Return the condition that two cells are the same value, not only equal ones.

    Spark calls 0.0 and -0.0 equal; as text they differ, and every float reads back from its text.
    """
    name = quoted(field.name)
    if pa.types.is_floating(field.type):
        return f"CAST({left}.{name} AS STRING) <=> CAST({right}.{name} AS STRING)"
    return f"{left}.{name} <=> {right}.{name}"


def is_sent(mask: str, index: int) -> str:
    """Return the condition that column ``index`` is not in a ``_missing`` mask; true for a null mask."""
    byte = f"CAST(CONV(HEX(SUBSTRING({mask}, {index // 8 + 1}, 1)), 16, 10) AS INT)"
    return f"COALESCE({byte} & {1 << (index % 8)}, 0) = 0"


def mask_columns(mask: str, names: Sequence[str]) -> list[str]:
    """Return the columns that a ``_missing`` mask, given in hexadecimal, names."""
    raw = bytes.fromhex(mask)
    return [
        name
        for index, name in enumerate(names)
        if index // 8 < len(raw) and raw[index // 8] >> (index % 8) & 1
    ]
