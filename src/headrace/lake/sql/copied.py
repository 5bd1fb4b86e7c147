"""A new copy of a table inside its warehouse, which readers see until the new one is whole.

The copy is a table of the schema ``headrace`` with a row of its own in the ledger, and everything that is applied
meanwhile goes there; so the table's own row goes on saying what readers see. One transaction then gives the table the
copy's rows and columns and lets the copy go. The table itself stays: so do the rights, views and indexes that people
gave it.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.errors import TargetConflict
from headrace.lake.copies import Copy
from headrace.lake.sql import columns, ledger, mysql_shapes
from headrace.lake.sql.dialect import Dialect, table_name
from headrace.lake.sql.ledger import LEDGER, Entry, copy_place
from headrace.lake.sql.session import Session
from headrace.model.schema import TableId, TableSchema
from headrace.model.succession import NO_NUMBERS

__all__ = ["ask_again", "begin", "discard", "entries", "take_place"]


def entries(
    session: Session, pipeline: str, place: TableId, table: TableId
) -> tuple[Entry, Entry | None] | tuple[None, None]:
    """Return what the ledger says of a table and of its copy; a copy without a table is none."""
    aside = copy_place(pipeline, table)
    found = ledger.read(session, pipeline, [table, aside])
    shown, copy = found.get(table), found.get(aside)
    if shown is None:
        return None, None
    shown = mysql_shapes.settled(session, place, shown)
    if copy is None or (shown.pending and shown.pending.done):
        # It has taken the table's place, and the ledger does not say so yet.
        return shown, None
    return shown, mysql_shapes.settled(session, aside, copy)


def begin(
    session: Session,
    dialect: Dialect,
    pipeline: str,
    shown_at: TableId,
    schema: TableSchema,
    copy: Copy,
) -> Entry:
    """Make an empty copy, inside a transaction; one that was begun before goes.

    Args:
        session: in that transaction.
        dialect: of the warehouse.
        pipeline: name under which positions are committed.
        shown_at: place of the table.
        schema: columns of the copy.
        copy: what it says of itself.

    Raises:
        IncompatibleSchemaChange: a name is none that the warehouse keeps.
        TargetConflict: the table is gone from the ledger.
    """
    place = copy_place(pipeline, schema.table)
    dialect.check_names(schema, place)
    shown, before = _held(session, pipeline, shown_at, schema.table)
    discard(session, dialect, pipeline, schema.table)
    above = max(shown.version, before.version if before else -1)
    columns.create(session, dialect, pipeline, place, schema, above + 1)
    return ledger.write(session, pipeline, None, schema, copy.after_scn, copy=copy, above=above)


def ask_again(
    session: Session, pipeline: str, place: TableId, table: TableId, request: str
) -> Entry:
    """Let another dump fill a copy, inside a transaction."""
    _, held = _held(session, pipeline, place, table)
    assert held is not None
    assert held.copy is not None
    schema = replace(held.schema, numbers=held.numbers)
    copy = replace(held.copy, request=request)
    return ledger.write(session, pipeline, held, schema, held.applied_scn, copy=copy)


def take_place(
    session: Session, dialect: Dialect, pipeline: str, place: TableId, table: TableId
) -> Entry:
    """Put a copy in its table's place, inside a transaction, and return the table's entry.

    Args:
        session: in that transaction.
        dialect: of the warehouse.
        pipeline: name under which positions are committed.
        place: of the table.
        table: the table.

    Raises:
        TargetConflict: table or copy is not as we left it.
    """
    shown, copy = _held(session, pipeline, place, table)
    assert copy is not None
    aside, schema = copy_place(pipeline, table), copy.schema
    if dialect.commits_ddl:
        return _exchanged(session, dialect, pipeline, place, shown, copy)
    # First, so that two writers wait for each other here and nowhere else.
    entry = ledger.write(
        session,
        pipeline,
        # Its columns are others now, whatever their names.
        replace(shown, numbers=NO_NUMBERS),
        replace(schema, numbers=copy.numbers),
        copy.applied_scn,
        above=copy.version,
    )
    columns.check_columns(session, dialect, place, shown.schema)
    columns.check_columns(session, dialect, aside, schema)
    columns.fill(session, dialect, place, shown.schema, schema, aside)
    discard(session, dialect, pipeline, table)
    return entry


def _exchanged(
    session: Session, dialect: Dialect, pipeline: str, place: TableId, shown: Entry, copy: Entry
) -> Entry:
    """Do the same where each change of a table is a commit of its own: the two tables change their names."""
    table, schema = shown.schema.table, copy.schema
    aside = copy_place(pipeline, table)
    columns.check_columns(session, dialect, place, shown.schema)
    columns.check_columns(session, dialect, aside, schema)
    held = ledger.intend(
        session,
        pipeline,
        shown,
        schema,
        mysql_shapes.mark_of(session, aside),
        numbers=copy.numbers,
        applied_scn=copy.applied_scn,
        above=copy.version,
    )
    mysql_shapes.exchange(session, place, aside)
    entry = ledger.write(
        session,
        pipeline,
        replace(held, numbers=NO_NUMBERS),
        replace(schema, numbers=copy.numbers),
        copy.applied_scn,
    )
    mysql_shapes.discard(session, aside)
    return entry


def discard(session: Session, dialect: Dialect, pipeline: str, table: TableId) -> None:
    """Remove the copy of a table with its row in the ledger, inside a transaction; does nothing when there is none."""
    place = copy_place(pipeline, table)
    # First: where removing is a commit, a row without its table would be one that somebody took away.
    ledger.forget(session, pipeline, place)
    if dialect.commits_ddl:
        mysql_shapes.discard(session, place)
    else:
        session.run(f"DROP TABLE IF EXISTS {table_name(place)}")


def _held(
    session: Session, pipeline: str, place: TableId, table: TableId
) -> tuple[Entry, Entry | None]:
    shown, copy = entries(session, pipeline, place, table)
    if shown is None:
        raise TargetConflict(
            f"The row of {table} vanished from {LEDGER} while the table is copied again.",
            next_step="let headrace be the only writer of its schema; the batch is tried again.",
        )
    return shown, copy
