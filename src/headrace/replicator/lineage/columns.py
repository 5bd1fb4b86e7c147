"""Column lineage of one table: each column of the target, and the source's columns that it is made of.

In: a version of the source's table, and what a person asked for its target. Out: values. Pure: expressions are parsed,
never run, and none is repeated: what masks a column may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from headrace.lake.modes import added_columns
from headrace.lake.settings import TableSettings
from headrace.model.schema import TableId, TableSchema, render_type

__all__ = ["ColumnLineage", "How", "TableLineage", "table_lineage"]


class How(Enum):
    """How a column of the target is made."""

    IDENTITY = "identity"
    """It has the values of one column of the source, perhaps under another name."""
    MASKED = "masked"
    """An expression stands in the place of the column's own values."""
    COMPUTED = "computed"
    """An expression over the source's columns."""
    ADDED = "added"
    """By the mode of the table: when and how its rows changed. It has no column of the source."""


@dataclass(frozen=True, slots=True)
class ColumnLineage:
    """One column of a target.

    Attributes:
        column: its name there.
        type: neutral type; empty where only Spark knows what an expression gives.
        how: it is made.
        inputs: columns of the source, in their order.
    """

    column: str
    type: str
    how: How
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableLineage:
    """One table.

    Attributes:
        table: at the source.
        schema: version of the source's table that the target has the columns of.
        columns: of the target.
        filters: columns of the source that say which rows the target has.
    """

    table: TableId
    schema: TableSchema
    columns: tuple[ColumnLineage, ...]
    filters: tuple[str, ...] = ()


def table_lineage(schema: TableSchema, settings: TableSettings) -> TableLineage:
    """Return the lineage of a table's target.

    Args:
        schema: version of the source's table.
        settings: what was asked for its target.
    """
    where = settings.where
    return TableLineage(
        schema.table,
        schema,
        tuple(_columns(schema, settings)),
        _inputs(where, schema) if where is not None else (),
    )


def _columns(schema: TableSchema, settings: TableSettings) -> Iterator[ColumnLineage]:
    names, masks = dict(settings.rename), dict(settings.mask)
    for name in settings.kept(schema):
        later = names.get(name, name)
        if name in masks:
            yield ColumnLineage(later, "", How.MASKED, _inputs(masks[name], schema) or (name,))
        else:
            type_ = render_type(schema.column(name).type)
            yield ColumnLineage(later, type_, How.IDENTITY, (name,))
    for name, sql in settings.compute:
        yield ColumnLineage(name, "", How.COMPUTED, _inputs(sql, schema))
    for name in added_columns(settings.mode):
        yield ColumnLineage(name, "", How.ADDED, ())


def _inputs(sql: str, schema: TableSchema) -> tuple[str, ...]:
    """Return the columns that an expression names."""
    named = _named(sql)
    # Spark takes names of columns in any case.
    return tuple(name for name in schema.names if name.lower() in named)


def _named(sql: str) -> set[str]:
    # The parser takes longer to load than a plain mirror needs in all.
    import sqlglot
    from sqlglot import exp

    try:
        parsed = sqlglot.parse_one(f"({sql})", read="spark")
    except sqlglot.errors.SqlglotError:
        # Spark decides what an expression is; every word of one that only Spark reads may be a column.
        return {word.lower() for word in re.findall(r"\w+", sql)}
    return {column.parts[0].name.lower() for column in parsed.find_all(exp.Column)}
