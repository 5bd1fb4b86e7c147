"""Which statements bring a target table's columns to a source table's version.

Pure: schemas in, SQL out. What Delta cannot do without a new copy of the table is refused here, before a
row is written.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.errors import IncompatibleSchemaChange
from headrace.model.change import table_arrow_schema
from headrace.model.schema import TableSchema, render_type
from headrace.spark.columns import quoted, spark_ddl, spark_type

__all__ = [
    "SCHEMA_PROPERTY",
    "WIDENING",
    "can_widen",
    "create_statement",
    "evolve_statements",
    "follows",
]

SCHEMA_PROPERTY = "headrace.schema_id"
"""Table property that names the version the columns were brought to."""

_CREATE_PROPERTIES = {
    # Readers without Spark do not know deletion vectors; the fast commit will decide for itself.
    "delta.enableDeletionVectors": "false",
    "delta.checkpointInterval": "20",
}

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


def create_statement(path: str, schema: TableSchema) -> str:
    """Return the statement that creates the table: columns exactly the source's."""
    properties = {**_CREATE_PROPERTIES, SCHEMA_PROPERTY: str(schema.schema_id)}
    return (
        f"CREATE TABLE IF NOT EXISTS {path} ({spark_ddl(table_arrow_schema(schema))}) "
        f"USING DELTA TBLPROPERTIES ({_properties(properties)})"
    )


def evolve_statements(path: str, held: pa.Schema, schema: TableSchema) -> list[str]:
    """Return the statements that bring a table with columns ``held`` to ``schema``, the last one its version.

    Raises:
        IncompatibleSchemaChange: a column is gone or has a type that its values do not fit.
    """
    wanted = table_arrow_schema(schema)
    for name in held.names:
        if name not in wanted.names:
            raise _incompatible(schema, name, "was dropped or renamed")
    widened = []
    for name in held.names:
        old, new = held.field(name).type, wanted.field(name).type
        if old == new:
            continue
        if not can_widen(old, new):
            raise _incompatible(
                schema, name, f"changed from {spark_type(old)} to {spark_type(new)}"
            )
        widened.append(f"ALTER TABLE {path} ALTER COLUMN {quoted(name)} TYPE {spark_type(new)}")
    properties = {SCHEMA_PROPERTY: str(schema.schema_id)}
    statements = []
    if widened:
        # Only now: the feature shuts out readers that do not know it.
        switch = _properties({"delta.enableTypeWidening": "true"})
        statements = [f"ALTER TABLE {path} SET TBLPROPERTIES ({switch})", *widened]
    added = [field for field in wanted if field.name not in held.names]
    if added:
        statements.append(f"ALTER TABLE {path} ADD COLUMNS ({spark_ddl(added)})")
    return [*statements, f"ALTER TABLE {path} SET TBLPROPERTIES ({_properties(properties)})"]


def _properties(values: dict[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in values.items())


def _incompatible(schema: TableSchema, column: str, what: str) -> IncompatibleSchemaChange:
    return IncompatibleSchemaChange(
        f"{schema.table}.{column} {what}, which the target table cannot follow.",
        next_step=(
            f"move the target table {schema.table} away and copy it again: "
            f"headrace dump start FILE --table {schema.table}."
        ),
    )
