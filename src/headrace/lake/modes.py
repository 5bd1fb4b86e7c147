"""What a target table keeps of its source's: the rows as they are, or what became of them.

Pure: a version of the source's table in, the columns of its target out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import IncompatibleSchemaChange
from headrace.fold.form import refuse_taken
from headrace.lake.evolution import SHAPE_PROPERTY
from headrace.lake.snapshot import Snapshot
from headrace.model.change import META, change_schema
from headrace.model.schema import Column, Shape, TableSchema

__all__ = [
    "COMMITTED_AT",
    "CURRENT",
    "DELETED",
    "DELETED_AT",
    "FROM_SCN",
    "MISSING",
    "OP",
    "ORD",
    "SCN",
    "TO_SCN",
    "VALID_FROM",
    "VALID_TO",
    "Mode",
    "added_columns",
    "live_batches",
    "live_rows",
    "logged_schema",
    "mode_named",
    "mode_of",
    "shaped",
]

DELETED, DELETED_AT = "_deleted", "_deleted_at"
OP, SCN, ORD, COMMITTED_AT, MISSING = "_op", "_scn", "_ord", "_committed_at", "_missing"
VALID_FROM, VALID_TO = "_valid_from", "_valid_to"
FROM_SCN, TO_SCN, CURRENT = "_from_scn", "_to_scn", "_current"

_TIME = pa.timestamp("us", tz="UTC")


class Mode(Enum):
    """What a target table keeps; the value is what the configuration says."""

    MIRROR = "mirror"
    """The rows that the source has."""
    APPEND = "append"
    """Every change, as a row of its own."""
    SOFT_DELETE = "soft_delete"
    """The rows that the source has or had; one that was deleted says so."""
    HISTORY = "history"
    """Every version of every row, with the time for which it held."""


_ADDED: dict[Mode, tuple[tuple[str, pa.DataType], ...]] = {
    Mode.MIRROR: (),
    Mode.APPEND: (
        (OP, pa.string()),
        (SCN, pa.int64()),
        (ORD, pa.int32()),
        (COMMITTED_AT, _TIME),
        (MISSING, pa.string()),
    ),
    Mode.SOFT_DELETE: ((DELETED, pa.bool_()), (DELETED_AT, _TIME), (SCN, pa.int64())),
    Mode.HISTORY: (
        (VALID_FROM, _TIME),
        (VALID_TO, _TIME),
        (FROM_SCN, pa.int64()),
        (TO_SCN, pa.int64()),
        (CURRENT, pa.bool_()),
    ),
}


def added_columns(mode: Mode) -> tuple[str, ...]:
    """Return the names of the columns that a mode adds behind the source's own."""
    return tuple(name for name, _ in _ADDED[mode])


def shaped(schema: TableSchema, mode: Mode) -> TableSchema:
    """Return the columns of a target table.

    Args:
        schema: version of the rows.
        mode: of the table.

    Raises:
        IncompatibleSchemaChange: a column of the source has a name that its changes, or the mode, need for
            themselves, or the table has no key and the mode needs one.
    """
    if mode is not Mode.APPEND:
        # Changes that stay as they came are never folded.
        refuse_taken(schema)
    if mode is Mode.MIRROR:
        return schema
    if not schema.key and mode is not Mode.APPEND:
        raise IncompatibleSchemaChange(
            f"{schema.table} has no key, without which the mode {mode.value} cannot tell its rows apart.",
            next_step="give the table a key, or choose mode: mirror or append for it.",
        )
    taken = {name.lower() for name in schema.names}
    reserved = (*added_columns(mode), *META, COMMITTED_AT)
    if clash := next((name for name in reserved if name in taken), None):
        raise IncompatibleSchemaChange(
            f"{schema.table} has a column {clash}, a name that the mode {mode.value} needs for itself.",
            next_step=f"leave the column out (source.columns), or choose another mode for {schema.table}.",
        )
    columns = (Column(name, type_, mode.value) for name, type_ in _ADDED[mode])
    return replace(
        schema,
        columns=(*schema.columns, *columns),
        shape=schema.shape or Shape(mode.value, schema.schema_id),
    )


def logged_schema(schema: TableSchema) -> pa.Schema:
    """Return the Arrow schema of changes with the time of their commits, truncates among them."""
    rows = change_schema(schema)
    return rows.insert(len(META), pa.field(COMMITTED_AT, _TIME, nullable=False))


def live_batches(held: Snapshot, mode: Mode) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table that are those of its source now.

    Args:
        held: the table.
        mode: of the table; one of changes has no such rows.
    """
    for batch in held.batches():
        yield live_rows(batch, mode)


def live_rows(batch: pa.RecordBatch, mode: Mode) -> pa.RecordBatch:
    """Return the rows of a batch that are those of the source now."""
    if mode is Mode.SOFT_DELETE:
        return batch.filter(pc.invert(batch.column(DELETED)))
    return batch.filter(batch.column(CURRENT)) if mode is Mode.HISTORY else batch


def mode_of(held: Snapshot) -> Mode:
    """Return the mode by which a target table was made."""
    return mode_named(held.properties.get(SHAPE_PROPERTY, ""))


def mode_named(shape: str) -> Mode:
    """Return the mode in what a target table remembers of how it was made, a mirror where that is nothing."""
    return Mode(shape.partition(":")[0] or Mode.MIRROR.value)
