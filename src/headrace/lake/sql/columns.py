"""The columns of one target table: made, brought to a newer version, and held against what is there.

The rules by which columns live on are `headrace.lake.planned`'s; here they become statements.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from headrace.errors import IncompatibleSchemaChange, TargetConflict
from headrace.lake.planned import ChangeKind, ColumnChange, column_changes
from headrace.lake.sql import ledger
from headrace.lake.sql.dialect import Dialect, literal, quoted, table_name
from headrace.lake.sql.ledger import LEDGER, Entry
from headrace.lake.sql.session import Session
from headrace.lake.sql.types import column_type
from headrace.model.change import table_arrow_schema
from headrace.model.schema import TableId, TableSchema

__all__ = ["bring_to", "check_columns", "found_columns", "make"]


def make(
    session: Session, dialect: Dialect, pipeline: str, place: TableId, schema: TableSchema
) -> Entry:
    """Create a table and its entry.

    Raises:
        IncompatibleSchemaChange: a name is none that the warehouse keeps.
        TargetConflict: another table is in its place.
    """
    dialect.check_names(schema, place)
    if found_columns(session, dialect, place):
        raise TargetConflict(
            f"A table that this pipeline did not make is in the place of the target table of {schema.table}.",
            next_step=f"move {place} away, or give the pipeline a place of its own; the batch is tried again.",
        )
    session.run(f"CREATE SCHEMA IF NOT EXISTS {quoted(place.schema)}")
    columns = [f"{quoted(c.name)} {column_type(c.type)}" for c in schema.columns]
    if dialect.keeps_keys and schema.key:
        columns.append(_key_clause(place, schema))
    session.run(f"CREATE TABLE {table_name(place)} ({', '.join(columns)})")
    return ledger.write(session, pipeline, None, schema, 0)


def bring_to(
    session: Session,
    dialect: Dialect,
    pipeline: str,
    place: TableId,
    held: Entry,
    schema: TableSchema,
) -> Entry:
    """Bring a table's columns to a version and return its entry.

    Raises:
        IncompatibleSchemaChange: the change cannot be carried over; nothing was changed.
        TargetConflict: the columns are not those that we left.
    """
    dialect.check_names(schema, place)
    check_columns(session, dialect, place, held.schema)
    changes = column_changes(table_arrow_schema(held.schema), held.numbers, schema)
    for change in changes:
        if change.kind is ChangeKind.REFUSED:
            raise IncompatibleSchemaChange(
                f"{schema.table}.{change.column} cannot be followed by the target table: {change.detail}.",
                next_step=(
                    f"drop {place} and its row in {LEDGER}, then copy it again: "
                    f"headrace dump start FILE --table {schema.table}."
                ),
            )
    names = {c.column: c.detail.removeprefix("to ") for c in changes if c.kind is ChangeKind.RENAME}
    kept = tuple(names.get(name, name) for name in held.schema.key)
    another_key = dialect.keeps_keys and (kept, held.schema.key_check) != (
        schema.key,
        schema.key_check,
    )
    if another_key and held.schema.key:
        session.run(f"ALTER TABLE {table_name(place)} DROP CONSTRAINT {_key_name(place)}")
    for action in _actions(changes, names, schema):
        session.run(f"ALTER TABLE {table_name(place)} {action}")
    if another_key and schema.key:
        session.run(f"ALTER TABLE {table_name(place)} ADD {_key_clause(place, schema)}")
    return ledger.write(session, pipeline, held, schema, held.applied_scn)


def check_columns(session: Session, dialect: Dialect, place: TableId, schema: TableSchema) -> None:
    """Refuse a table whose columns somebody else has changed, or that is gone.

    Raises:
        TargetConflict: says which of the two.
    """
    found = found_columns(session, dialect, place)
    wanted = {c.name: dialect.type_of(column_type(c.type)) for c in schema.columns}
    if found == wanted:
        return
    if not found:
        raise TargetConflict(
            f"The target table of {schema.table} is gone from the warehouse.",
            next_step=(
                f"put {place} back as it was, or delete its row in {LEDGER} and copy it again: "
                f"headrace dump start FILE --table {schema.table}."
            ),
        )
    raise TargetConflict(
        f"The columns of the target table of {schema.table} are not those that headrace made.",
        next_step="undo the change of its columns; the batch is tried again.",
    )


def found_columns(session: Session, dialect: Dialect, place: TableId) -> dict[str, str]:
    """Return the type of each column of a table by name, nothing when there is no table."""
    query = dialect.columns_query.format(schema=literal(place.schema), name=literal(place.name))
    return {name: dialect.type_of(type_, own=True) for name, type_ in session.rows(query)}


def _actions(
    changes: Sequence[ColumnChange], names: dict[str, str], schema: TableSchema
) -> Iterator[str]:
    """Yield what is done to the columns, in an order in which no name is in the way of another."""
    for change in changes:
        if change.kind is ChangeKind.DROP:
            yield f"DROP COLUMN {quoted(change.column)}"
    for change in changes:
        if change.kind is ChangeKind.WIDEN:
            now = schema.column(names.get(change.column, change.column))
            yield f"ALTER COLUMN {quoted(change.column)} TYPE {column_type(now.type)}"
    aside = {old: f"headrace {number}" for number, old in enumerate(names)}
    for old, meanwhile in aside.items():
        yield f"RENAME COLUMN {quoted(old)} TO {quoted(meanwhile)}"
    for old, meanwhile in aside.items():
        yield f"RENAME COLUMN {quoted(meanwhile)} TO {quoted(names[old])}"
    for change in changes:
        if change.kind is ChangeKind.ADD:
            now = schema.column(change.column)
            yield f"ADD COLUMN {quoted(now.name)} {column_type(now.type)}"


def _key_clause(place: TableId, schema: TableSchema) -> str:
    names = ", ".join(map(quoted, schema.key))
    # No primary key: sources have keys that let null in.
    return f"CONSTRAINT {_key_name(place)} UNIQUE NULLS NOT DISTINCT ({names})"


def _key_name(place: TableId) -> str:
    """Return a name of the key that no other table's has, however long the table's is."""
    return f"headrace_key_{hashlib.sha256(str(place).encode()).hexdigest()[:16]}"
