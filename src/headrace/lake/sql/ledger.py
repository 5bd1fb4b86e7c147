"""The ledger of a warehouse: one row per pipeline and table, changed in the transaction that changes the table.

It remembers the columns that the target was brought to, with the source's numbers of them, so that no catalog has to be
translated back; and the mode and settings by which a table was made. A new copy of a table has a row of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from headrace.errors import TargetConflict
from headrace.lake.copies import Copy
from headrace.lake.sql.dialect import literal, table_name
from headrace.lake.sql.session import Session
from headrace.model.schema import Shape, TableId, TableSchema
from headrace.model.succession import Numbers

__all__ = [
    "LEDGER",
    "SCHEMA",
    "Entry",
    "Pending",
    "copy_place",
    "create",
    "forget",
    "intend",
    "read",
    "write",
]

SCHEMA = "headrace"
"""Schema of our own tables; no table of it is ever captured."""
LEDGER = TableId(SCHEMA, "ledger")

_COLUMNS = "table_schema, table_name, applied_scn, version, shape, numbers"


@dataclass(frozen=True, slots=True)
class Pending:
    """What a table is about to be, where its change is a commit of its own.

    Attributes:
        mark: that the table itself has once it is so.
        applied_scn: position that its rows reflect then.
        schema: its columns then.
        numbers: the source's own of those.
        done: whether the table was seen with the mark.
    """

    mark: str
    applied_scn: int
    schema: TableSchema
    numbers: Numbers
    done: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of one target table.

    Attributes:
        applied_scn: position that its rows reflect, 0 before the first.
        version: how often rows or columns were changed; a copy goes on where its table stands.
        schema: its columns: of the version that it was brought to, those of its mode, and those that are kept.
        numbers: the source's own of those columns, as far as they were told.
        copy: of a new copy of a table, what it says of itself.
        pending: what was about to be done when the entry was written.
    """

    applied_scn: int
    version: int
    schema: TableSchema
    numbers: Numbers
    copy: Copy | None = None
    pending: Pending | None = None

    def seen(self, mark: str) -> Entry:
        """Return the entry of a table that has some mark: what was about to be done is done, or never was."""
        pending = self.pending
        if pending is None or pending.mark != mark:
            return self
        return replace(
            self,
            applied_scn=pending.applied_scn,
            schema=pending.schema,
            numbers=pending.numbers,
            pending=replace(pending, done=True),
        )


def copy_place(pipeline: str, table: TableId) -> TableId:
    """Return where a new copy of a table is made; its row in the ledger is called the same."""
    return TableId(SCHEMA, f"copy{hashlib.sha256(f'{pipeline} {table}'.encode()).hexdigest()[:24]}")


def create(session: Session) -> None:
    """Make the ledger unless it is there."""
    session.run(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
    session.run(
        f"CREATE TABLE IF NOT EXISTS {table_name(LEDGER)} (pipeline text NOT NULL, "
        "table_schema text NOT NULL, table_name text NOT NULL, applied_scn bigint NOT NULL, "
        "version bigint NOT NULL, schema_id bigint NOT NULL, shape text NOT NULL, "
        "numbers text NOT NULL, updated timestamptz NOT NULL)"
    )


def read(
    session: Session, pipeline: str, tables: Iterable[TableId] | None = None
) -> dict[TableId, Entry]:
    """Return the entries of a pipeline, or of some tables and copies of it; the ledger is there."""
    chosen = (
        f"pipeline = {literal(pipeline)}"
        if tables is None
        else " OR ".join(f"({_where(pipeline, table)})" for table in tables)
    )
    rows = session.rows(f"SELECT {_COLUMNS} FROM {table_name(LEDGER)} WHERE {chosen}")
    return {
        TableId(schema, name): _entry(scn, version, json.loads(shape), json.loads(numbers))
        for schema, name, scn, version, shape, numbers in rows
    }


def write(
    session: Session,
    pipeline: str,
    held: Entry | None,
    schema: TableSchema,
    applied_scn: int,
    *,
    copy: Copy | None = None,
    above: int = -1,
) -> Entry:
    """Put an entry in the place of the one that was read, and return it.

    Args:
        session: in a transaction.
        pipeline: name under which positions are committed.
        held: the one that was read, None for none.
        schema: columns of the table.
        applied_scn: position that its rows reflect.
        copy: of a new copy, what it says of itself; one that was read goes on saying it.
        above: a version that the entry's shall be above, beside that of ``held``.

    Raises:
        TargetConflict: somebody else has changed it since.
    """
    copy = copy or (held.copy if held else None)
    table = copy_place(pipeline, schema.table) if copy else schema.table
    version = max(above, held.version if held else -1) + 1
    numbers = dict(held.numbers) if held and not schema.numbers else dict(schema.numbers)
    if held is None:
        session.run(
            f"INSERT INTO {table_name(LEDGER)} (pipeline, table_schema, table_name, applied_scn, "
            "version, schema_id, shape, numbers, updated) VALUES "
            f"({literal(pipeline)}, {literal(table.schema)}, {literal(table.name)}, {applied_scn}, "
            f"{version}, {schema.schema_id}, {literal(_text(schema, copy))}, "
            f"{literal(json.dumps(numbers))}, now())"
        )
        return Entry(applied_scn, version, schema, numbers, copy)
    change = f"applied_scn = {applied_scn}"
    shape = _text(schema, copy)
    if held.pending or (_text(held.schema, held.copy), held.numbers) != (shape, numbers):
        change += f", schema_id = {schema.schema_id}, shape = {literal(shape)}"
        change += f", numbers = {literal(json.dumps(numbers))}"
    _change(session, pipeline, table, held, version, change)
    if held.pending and held.pending.done and copy is None:
        # It may have been its copy that took its place.
        forget(session, pipeline, copy_place(pipeline, table))
    return Entry(applied_scn, version, schema, numbers, copy)


def intend(
    session: Session,
    pipeline: str,
    held: Entry,
    schema: TableSchema,
    mark: str,
    *,
    numbers: Numbers,
    applied_scn: int,
    above: int = -1,
) -> Entry:
    """Write down what a table is about to be, and return its entry as it is; `write` says that it is done.

    Args:
        session: in a transaction.
        pipeline: name under which positions are committed.
        held: the entry that was read.
        schema: columns that the table will have.
        mark: that it will have itself.
        numbers: the source's own of those.
        applied_scn: position that its rows will reflect.
        above: as of `write`.

    Raises:
        TargetConflict: somebody else has changed the entry since.
    """
    table = copy_place(pipeline, schema.table) if held.copy else schema.table
    version = max(above, held.version) + 1
    pending = Pending(mark, applied_scn, schema, dict(numbers), done=True)
    change = f"applied_scn = {held.applied_scn}, schema_id = {held.schema.schema_id}"
    change += f", shape = {literal(_text(held.schema, held.copy, pending))}"
    change += f", numbers = {literal(json.dumps(dict(held.numbers)))}"
    _change(session, pipeline, table, held, version, change)
    return replace(held, version=version, pending=pending)


def _change(
    session: Session, pipeline: str, table: TableId, held: Entry, version: int, change: str
) -> None:
    """Change the entry that was read, and no other."""
    where = f"{_where(pipeline, table)} AND version = {held.version}"
    if held.pending is None:
        where += f" AND applied_scn = {held.applied_scn}"
    changed = session.run(
        f"UPDATE {table_name(LEDGER)} SET {change}, version = {version}, updated = now() WHERE {where}"
    )
    if changed != 1:
        raise TargetConflict(
            f"Somebody else brought the target table of {held.schema.table} further during a batch.",
            next_step="let one headrace process write the table; the batch is tried again.",
        )


def forget(session: Session, pipeline: str, table: TableId) -> None:
    """Remove the entry of a table, or of a copy by its place."""
    session.run(f"DELETE FROM {table_name(LEDGER)} WHERE {_where(pipeline, table)}")


def _text(schema: TableSchema, copy: Copy | None, pending: Pending | None = None) -> str:
    """Return a target's columns as text; what no plain mirror has stands there only where it is."""
    text = _columns_text(schema)
    if copy is not None:
        text["copy"] = asdict(copy)
    if pending is not None:
        text["pending"] = {
            "mark": pending.mark,
            "applied_scn": pending.applied_scn,
            "shape": _columns_text(pending.schema),
            "numbers": dict(pending.numbers),
        }
    return json.dumps(text)


def _columns_text(schema: TableSchema) -> dict[str, Any]:
    text = replace(schema, kept=frozenset()).to_json()
    if schema.shape is not None:
        text["made"] = {"as": schema.shape.text, "schema_id": schema.shape.schema_id}
    if schema.kept:
        text["kept"] = sorted(schema.kept)
    return text


def _entry(scn: int, version: int, text: dict[str, Any], numbers: Numbers) -> Entry:
    copy = Copy(**text["copy"]) if "copy" in text else None
    pending = None
    if "pending" in text:
        to_be = text["pending"]
        columns = _columns(to_be["shape"])
        pending = Pending(to_be["mark"], to_be["applied_scn"], columns, to_be["numbers"])
    return Entry(scn, version, _columns(text), numbers, copy, pending)


def _columns(text: dict[str, Any]) -> TableSchema:
    made = text.get("made")
    shape = Shape(made["as"], made["schema_id"]) if made else None
    kept = frozenset(text.get("kept", ()))
    return replace(TableSchema.from_json(text), shape=shape, kept=kept)


def _where(pipeline: str, table: TableId) -> str:
    return (
        f"pipeline = {literal(pipeline)} AND table_schema = {literal(table.schema)} "
        f"AND table_name = {literal(table.name)}"
    )
