"""Column types of a Delta table in Arrow terms, both ways.

In: the ``schemaString`` of a table's metadata. Out: a `pyarrow.Schema`; `arrow_type` and
`delta_type` are inverse on the types that headrace writes.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

from headrace.errors import UnsupportedTableFeature
from headrace.lake import mapping
from headrace.lake.errors import CorruptTable

__all__ = ["arrow_schema", "arrow_type", "delta_type", "schema_string"]

_PRIMITIVE: dict[str, pa.DataType] = {
    "string": pa.string(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_NAMES = {type_: name for name, type_ in _PRIMITIVE.items()}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")


def arrow_type(name: str) -> pa.DataType:
    """Return the Arrow type of a Delta primitive type.

    Raises:
        ValueError: when the name is unknown.
    """
    if name in _PRIMITIVE:
        return _PRIMITIVE[name]
    if match := _DECIMAL.fullmatch(name):
        return pa.decimal128(int(match[1]), int(match[2]))
    raise ValueError(f"unknown type {name!r}")


def delta_type(type_: pa.DataType) -> str:
    """Return the Delta name of an Arrow type.

    Raises:
        ValueError: when Delta has no such type.
    """
    if pa.types.is_decimal128(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if type_ in _NAMES:
        return _NAMES[type_]
    raise ValueError(f"no Delta type holds {type_}")


def arrow_schema(text: str, table: str) -> pa.Schema:
    """Return the Arrow schema of a ``schemaString``; its fields know their names in files (`lake.mapping`).

    Raises:
        CorruptTable: when the text is not a schema.
        UnsupportedTableFeature: when a column has a nested or unknown type.
    """
    try:
        fields = json.loads(text)["fields"]
        columns = [
            (
                f["name"],
                f["type"],
                bool(f["nullable"]),
                mapping.from_metadata(f.get("metadata") or {}),
            )
            for f in fields
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptTable(
            f"The table {table} has a schema in its log that does not read.",
            next_step="look at the newest metaData action of its _delta_log.",
        ) from error
    return pa.schema(
        [
            pa.field(name, _column_type(name, kind, table), null, metadata=known)
            for name, kind, null, known in columns
        ]
    )


def _column_type(column: str, kind: Any, table: str) -> pa.DataType:
    try:
        return arrow_type(kind if isinstance(kind, str) else str(kind["type"]))
    except ValueError as error:
        raise UnsupportedTableFeature(
            f"Column {column} of the table {table} has a type that this reader does not know "
            f"({error}).",
            next_step="read the table with Spark, or leave the column out of it.",
        ) from error


def schema_string(schema: pa.Schema) -> str:
    """Return the ``schemaString`` of an Arrow schema of `delta_type` types."""
    fields = [
        {"name": f.name, "type": delta_type(f.type), "nullable": f.nullable, "metadata": {}}
        for f in schema
    ]
    return json.dumps({"type": "struct", "fields": fields})
