"""Tables made, changed and exchanged at servers where each such statement is a commit of its own.

What a table is about to be is in the ledger before; then one statement makes it so and leaves a mark in the table's
comment; then the ledger says that it is. Whoever finds the ledger in between knows by the mark which of the two holds.

Source: MySQL 8.4 documentation, "Statements That Cause an Implicit Commit" and "Atomic Data Definition Statement
Support".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa

from headrace.errors import IncompatibleSchemaChange, TargetUnwritable
from headrace.lake.modes import Mode, mode_named
from headrace.lake.planned import ChangeKind, ColumnChange
from headrace.lake.sql import ledger
from headrace.lake.sql.dialect import Dialect, literal
from headrace.lake.sql.ledger import SCHEMA, Entry
from headrace.lake.sql.mysql_words import NUMBER_AS_TEXT, name_of, table_of, table_text
from headrace.lake.sql.session import Session
from headrace.lake.sql.types import column_type
from headrace.model.schema import TableId, TableSchema

__all__ = ["alone", "alter", "create", "discard", "exchange", "mark_of", "new_mark", "settled"]

_KEY = "headrace_key"
_WAIT_S = 30
_MOST_PARTS = 16
"""Columns of one index."""
_LETTERS = 700
"""Letters of all texts in one index; four octets each, of 3,072."""


def new_mark(pipeline: str, version: int) -> str:
    """Return the mark of what an entry's version makes of its table."""
    return f"headrace {hashlib.sha256(pipeline.encode()).hexdigest()[:12]} {version}"


def mark_of(session: Session, place: TableId) -> str:
    """Return the mark that a table has, empty when there is none."""
    found = session.rows(
        "SELECT table_name, table_comment FROM information_schema.tables "
        f"WHERE table_schema = {literal(place.schema)} AND table_name = {literal(place.name)}"
    )
    return next((str(mark) for name, mark in found if name == place.name), "")


def settled(session: Session, place: TableId, entry: Entry) -> Entry:
    """Return an entry as the table has it: changed, if it was about to be, or not."""
    return entry if entry.pending is None else entry.seen(mark_of(session, place))


def is_unfinished(session: Session, pipeline: str, place: TableId, table: TableId) -> bool:
    """Return whether a table is one that we began and the ledger does not know: nothing can be in it yet."""
    if not mark_of(session, place).startswith(new_mark(pipeline, 0)[:-1]):
        return False
    known = ledger.read(session, pipeline, [table])
    return not known and not session.rows(f"SELECT 1 FROM {table_of(place)} LIMIT 1")


@contextmanager
def alone(session: Session, place: TableId) -> Iterator[None]:
    """Keep others from changing the shape of a table meanwhile; what they began and never ended goes on for nobody.

    Raises:
        TargetUnwritable: somebody else does for long.
    """
    name = literal(f"headrace {hashlib.sha256(str(place).encode()).hexdigest()[:24]}")
    if session.rows(f"SELECT GET_LOCK({name}, {_WAIT_S})") != [(1,)]:
        raise TargetUnwritable(
            f"Another session has been changing the columns of {place} for {_WAIT_S} s.",
            next_step="let one headrace process write the table; the batch is tried again.",
        )
    try:
        yield
    finally:
        session.rows(f"SELECT RELEASE_LOCK({name})")


def create(
    session: Session, dialect: Dialect, place: TableId, schema: TableSchema, mark: str
) -> None:
    """Create an empty table, its index with it, in a schema that is there."""
    parts = [f"{name_of(c.name)} {_type(dialect, c.type)}" for c in schema.columns]
    if index := _index(dialect, schema):
        parts.append(index)
    ((collation,),) = session.rows("SELECT @@collation_connection")
    further = f" COMMENT={literal(mark)}"
    session.run(table_text(table_of(place), parts, str(collation), further), own=True)


def alter(
    session: Session,
    dialect: Dialect,
    place: TableId,
    held: TableSchema,
    schema: TableSchema,
    changes: Sequence[ColumnChange],
    names: Mapping[str, str],
    mark: str,
) -> None:
    """Give a table all of its new columns by one statement.

    Args:
        session: whose transaction ends here.
        dialect: of the server.
        place: of the table.
        held: its columns.
        schema: its columns afterwards.
        changes: what happens to single columns.
        names: the later name of each column that has another one.
        mark: that the table has afterwards.
    """
    _mend_texts(session, dialect, place, held, schema, changes, names)
    gone = {change.column for change in changes if change.kind is ChangeKind.DROP}
    wider = {change.column for change in changes if change.kind is ChangeKind.WIDEN}
    new = [change.column for change in changes if change.kind is ChangeKind.ADD]
    actions = [f"DROP COLUMN {name_of(name)}" for name in gone]
    for old in held.names:
        now = names.get(old, old)
        if old not in gone and (now != old or old in wider):
            type_ = _type(dialect, schema.column(now).type)
            actions.append(f"CHANGE COLUMN {name_of(old)} {name_of(now)} {type_}")
    actions += [
        f"ADD COLUMN {name_of(name)} {_type(dialect, schema.column(name).type)}" for name in new
    ]
    before, after = _index(dialect, held), _index(dialect, schema)
    same_key = tuple(names.get(name, name) for name in held.key) == schema.key
    if before and not (after and same_key and not wider.intersection(held.key)):
        actions.append(f"DROP INDEX {name_of(_KEY)}")
        before = ""
    if after and not before:
        actions.append(f"ADD {after}")
    actions.append(f"COMMENT={literal(mark)}")
    session.run(f"ALTER TABLE {table_of(place)} {', '.join(actions)}", own=True)


def _mend_texts(
    session: Session,
    dialect: Dialect,
    place: TableId,
    held: TableSchema,
    schema: TableSchema,
    changes: Sequence[ColumnChange],
    names: Mapping[str, str],
) -> None:
    """Give values that lie as text the form of their wider type; done again, this does nothing.

    Raises:
        IncompatibleSchemaChange: only their digits could tell it.
    """
    for change in changes:
        if change.kind is not ChangeKind.WIDEN:
            continue
        before = held.column(change.column).type
        after = schema.column(names.get(change.column, change.column)).type
        if pa.types.is_date32(before) and _type(dialect, after) == NUMBER_AS_TEXT:
            name = name_of(change.column)
            session.run(
                f"UPDATE {table_of(place)} SET {name} = CONCAT({name}, ' 00:00:00.000000') "
                f"WHERE {name} NOT LIKE '%infinity' AND {name} NOT LIKE '%:%'",
                own=True,
            )
        elif pa.types.is_decimal(after) and _type(dialect, after) == NUMBER_AS_TEXT:
            raise IncompatibleSchemaChange(
                f"{schema.table}.{change.column} cannot become a number with {after.scale} places in the target table: "
                "it would be text there.",
                next_step=f"drop {place} and its row in {ledger.LEDGER}, then copy the table again.",
            )


def exchange(session: Session, place: TableId, copy: TableId) -> None:
    """Put a copy in a table's place; names keep the views and rights that people gave, and no reader waits."""
    aside = _aside(copy)
    session.run(f"DROP TABLE IF EXISTS {table_of(aside)}", own=True)
    session.run(
        f"RENAME TABLE {table_of(place)} TO {table_of(aside)}, {table_of(copy)} TO {table_of(place)}",
        own=True,
    )


def discard(session: Session, copy: TableId) -> None:
    """Remove what an exchange left, or a copy that was begun."""
    session.run(f"DROP TABLE IF EXISTS {table_of(_aside(copy))}, {table_of(copy)}", own=True)


def _aside(copy: TableId) -> TableId:
    return TableId(SCHEMA, f"old_{copy.name}")


def _type(dialect: Dialect, type_: pa.DataType) -> str:
    return dialect.type_of(column_type(type_))


def _index(dialect: Dialect, schema: TableSchema) -> str:
    """Return the index by which rows are found, empty where none are looked for."""
    if not schema.key or mode_named(schema.shape.text if schema.shape else "") is Mode.APPEND:
        return ""
    types = {name: _type(dialect, schema.column(name).type) for name in schema.key[:_MOST_PARTS]}
    long = [name for name, type_ in types.items() if type_.startswith("long")]
    letters = _LETTERS // max(len(types), 1)
    parts = [f"{name_of(name)}({letters})" if name in long else name_of(name) for name in types]
    return f"INDEX {name_of(_KEY)} ({', '.join(parts)})"
