"""The columns of one target table: made, brought to a newer version, and held against what is there.

The rules by which columns live on are `headrace.lake.planned`'s; here they become statements.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from headrace.errors import IncompatibleSchemaChange, TargetConflict
from headrace.lake.copies import refuse_in_place
from headrace.lake.modes import CURRENT, Mode, mode_named
from headrace.lake.planned import ChangeKind, ColumnChange, column_changes
from headrace.lake.policies import DEFAULTS, Policies
from headrace.lake.sql import ledger, mysql_shapes
from headrace.lake.sql.dialect import Dialect, literal, quoted, table_name
from headrace.lake.sql.ledger import LEDGER, Entry
from headrace.lake.sql.session import Session
from headrace.lake.sql.types import column_type
from headrace.model.change import table_arrow_schema
from headrace.model.schema import Column, TableId, TableSchema

__all__ = ["bring_to", "check_columns", "create", "fill", "found_columns", "make"]


def make(
    session: Session, dialect: Dialect, pipeline: str, place: TableId, schema: TableSchema
) -> Entry:
    """Create a table and its entry.

    Raises:
        IncompatibleSchemaChange: a name is none that the warehouse keeps.
        TargetConflict: another table is in its place.
    """
    dialect.check_names(schema, place)
    if dialect.commits_ddl and mysql_shapes.is_unfinished(session, pipeline, place, schema.table):
        session.run(f"DROP TABLE {table_name(place)}")
    if found_columns(session, dialect, place):
        raise TargetConflict(
            f"A table that this pipeline did not make is in the place of the target table of {schema.table}.",
            next_step=f"move {place} away, or give the pipeline a place of its own; the batch is tried again.",
        )
    session.run(f"CREATE SCHEMA IF NOT EXISTS {quoted(place.schema)}")
    create(session, dialect, pipeline, place, schema, 0)
    return ledger.write(session, pipeline, None, schema, 0)


def create(
    session: Session,
    dialect: Dialect,
    pipeline: str,
    place: TableId,
    schema: TableSchema,
    version: int,
) -> None:
    """Create an empty table in a schema that is there; ``version`` is that of its entry in the ledger."""
    if dialect.commits_ddl:
        mark = mysql_shapes.new_mark(pipeline, version)
        mysql_shapes.create(session, dialect, place, schema, mark)
        return
    columns = [f"{quoted(c.name)} {column_type(c.type)}" for c in schema.columns]
    session.run(f"CREATE TABLE {table_name(place)} ({', '.join(columns)})")
    _keep_key(session, dialect, place, schema)


def fill(
    session: Session,
    dialect: Dialect,
    place: TableId,
    held: TableSchema,
    schema: TableSchema,
    rows: TableId,
) -> None:
    """Give a table the columns and the rows of another; columns that are the same stay as they are.

    Args:
        session: in a transaction.
        dialect: of the warehouse.
        place: of the table.
        held: its columns.
        schema: those of the other.
        rows: place of the other.
    """
    target = table_name(place)
    _drop_key(session, dialect, place, held)
    # No TRUNCATE, and no column takes another type: both would empty the table under readers whose snapshot is older.
    session.run(f"DELETE FROM {target}")
    for action in _exchanged(held, schema):
        session.run(f"ALTER TABLE {target} {action}")
    names = ", ".join(map(quoted, schema.names))
    session.run(f"INSERT INTO {target} ({names}) SELECT {names} FROM {table_name(rows)}")
    _keep_key(session, dialect, place, schema)


def _exchanged(held: TableSchema, schema: TableSchema) -> Iterator[str]:
    """Yield what takes a table's columns away and brings others, never leaving it without any."""
    now = {column.name: column_type(column.type) for column in schema.columns}
    before = {column.name: column_type(column.type) for column in held.columns}
    gone = [name for name, type_ in before.items() if now.get(name) != type_]
    for number, name in enumerate(gone):
        yield f"RENAME COLUMN {quoted(name)} TO {quoted(f'headrace {number}')}"
    for name, type_ in now.items():
        if before.get(name) != type_:
            yield f"ADD COLUMN {quoted(name)} {type_}"
    for number in range(len(gone)):
        yield f"DROP COLUMN {quoted(f'headrace {number}')}"


def bring_to(
    session: Session,
    dialect: Dialect,
    pipeline: str,
    place: TableId,
    held: Entry,
    schema: TableSchema,
    policies: Policies = DEFAULTS,
) -> Entry:
    """Bring a table's columns to a version and return its entry.

    Args:
        session: in a transaction.
        dialect: of the warehouse.
        pipeline: name under which positions are committed.
        place: of the table.
        held: what the ledger says of it.
        schema: the version, with the columns that the table's mode adds.
        policies: what happens to columns that cannot live on.

    Raises:
        CopyNeeded: the change takes a new copy; nothing was changed.
        IncompatibleSchemaChange: the change cannot be carried over; nothing was changed.
        TargetConflict: the columns are not those that we left.
    """
    check_columns(session, dialect, place, held.schema)
    found = column_changes(
        table_arrow_schema(held.schema), held.numbers, schema, policies, held.schema.kept
    )
    refuse_in_place(schema.table, found)
    for change in found:
        if change.kind is ChangeKind.REFUSED:
            raise _refused(place, schema, change)
    later = {c.column: c.later for c in found if c.kind in (ChangeKind.KEEP, ChangeKind.ASIDE)}
    schema = schema.keeping(_kept(held.schema, later))
    dialect.check_names(schema, place)
    names = {c.column: c.detail.removeprefix("to ") for c in found if c.kind is ChangeKind.RENAME}
    moved = names | {old: new for old, new in later.items() if old != new}
    if dialect.commits_ddl:
        mark = mysql_shapes.new_mark(pipeline, held.version + 1)
        numbers = schema.numbers or held.numbers
        intended = ledger.intend(
            session,
            pipeline,
            held,
            schema,
            mark,
            numbers=numbers,
            applied_scn=held.applied_scn,
        )
        mysql_shapes.alter(session, dialect, place, held.schema, schema, found, moved, mark)
        return ledger.write(session, pipeline, intended, schema, held.applied_scn)
    key = tuple(names.get(name, name) for name in held.schema.key)
    another_key = (key, held.schema.key_check) != (schema.key, schema.key_check) or (
        not dialect.changes_types
        and any(c.kind is ChangeKind.WIDEN and c.column in held.schema.key for c in found)
    )
    if another_key:
        _drop_key(session, dialect, place, held.schema)
    for action in _actions(found, moved, schema):
        session.run(f"ALTER TABLE {table_name(place)} {action}")
    if another_key:
        _keep_key(session, dialect, place, schema)
    return ledger.write(session, pipeline, held, schema, held.applied_scn)


def _refused(place: TableId, schema: TableSchema, change: ColumnChange) -> IncompatibleSchemaChange:
    reason = change.detail.removesuffix(",")
    return IncompatibleSchemaChange(
        f"{schema.table}.{change.column} cannot be followed by the target table: {reason}.",
        next_step=(
            f"drop {place} and its row in {LEDGER}, then copy it again: "
            f"headrace dump start FILE --table {schema.table}."
        ),
    )


def _kept(held: TableSchema, later: dict[str, str]) -> list[Column]:
    """Return the columns that the source no longer has, by their later names."""
    return [
        Column(later.get(column.name, column.name), column.type, "kept")
        for column in held.columns
        if column.name in held.kept or column.name in later
    ]


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
    """Yield what is done to the columns, in an order in which no name is in the way of another.

    Args:
        changes: of the columns.
        names: the later name of each column that has another one.
        schema: the columns afterwards.
    """
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


def _keep_key(session: Session, dialect: Dialect, place: TableId, schema: TableSchema) -> None:
    """Let the server find rows by their key, where it can."""
    if not schema.key:
        return
    names, name = ", ".join(map(quoted, schema.key)), _key_name(place)
    if dialect.indexes_keys:
        session.run(f"CREATE INDEX {name} ON {table_name(place)} ({names})")
    if not dialect.keeps_keys:
        return
    match _mode(schema):
        case Mode.MIRROR:
            # No primary key: sources have keys that let null in.
            session.run(
                f"ALTER TABLE {table_name(place)} ADD CONSTRAINT {name} "
                f"UNIQUE NULLS NOT DISTINCT ({names})"
            )
        case Mode.HISTORY:
            current = f"WHERE {quoted(CURRENT)}"
            session.run(f"CREATE INDEX {name} ON {table_name(place)} ({names}) {current}")
        case Mode.SOFT_DELETE:
            # Not unique: 0.0 and -0.0, which are one key to the server, may both have been.
            session.run(f"CREATE INDEX {name} ON {table_name(place)} ({names})")
        case Mode.APPEND:
            pass


def _drop_key(session: Session, dialect: Dialect, place: TableId, schema: TableSchema) -> None:
    """Undo what `_keep_key` did."""
    mode = _mode(schema)
    if dialect.indexes_keys and schema.key:
        session.run(f"DROP INDEX {_key_name(place)}")
    if not dialect.keeps_keys or not schema.key or mode is Mode.APPEND:
        return
    if mode is Mode.MIRROR:
        session.run(f"ALTER TABLE {table_name(place)} DROP CONSTRAINT {_key_name(place)}")
    else:
        session.run(f"DROP INDEX {quoted(place.schema)}.{_key_name(place)}")


def _mode(schema: TableSchema) -> Mode:
    return mode_named(schema.shape.text if schema.shape else "")


def _key_name(place: TableId) -> str:
    """Return a name of the key that no other table's has, however long the table's is."""
    return f"headrace_key_{hashlib.sha256(str(place).encode()).hexdigest()[:16]}"
