"""Tables of changes in plain Parquet: one file per batch, numbered, and never touched again.

A file's footer says which stretch of the log it holds, so rows and applied SCN become durable together. It is written
under a name that readers pass over, and gets its number by a hard link, which only one writer can make: whoever reads
all files of a folder that end in ``.parquet`` sees each change once. What the newest footer says of columns is said of
all files: a column never comes back in a type that older files cannot be read together with.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.durable import sync_folder
from headrace.errors import IncompatibleSchemaChange, TargetConflict
from headrace.lake.append import named_missing
from headrace.lake.errors import CorruptTable
from headrace.lake.ledger import check_ahead
from headrace.lake.modes import Mode, shaped
from headrace.lake.planned import ChangeKind, ColumnChange
from headrace.lake.widening import can_widen
from headrace.model.change import table_arrow_schema
from headrace.model.schema import TableSchema, parse_type, render_type

__all__ = [
    "Draft",
    "Head",
    "forget_drafts",
    "head_of",
    "publish",
    "refuse",
    "told_changes",
    "write_draft",
]

_NAME = re.compile(r"(\d{20})\.parquet")
_SAYS = b"headrace"
"""Footer metadata: what a file says of itself, as JSON."""
_DRAFTS_AFTER_S = 86_400.0
"""Age of a draft from which on nobody will publish it any more."""


@dataclass(frozen=True, slots=True)
class Head:
    """What the newest file of a table says.

    Attributes:
        version: its number, from 0.
        pipeline: that wrote it.
        after_scn: its changes lie behind this position.
        applied_scn: and up to this one.
        schema_id: table version of its rows.
        shape: mode and settings by which the table was made.
        now: its own columns, which are the source's and those of the mode.
        columns: every column that any file has, with the neutral name of its widest type.
    """

    version: int
    pipeline: str
    after_scn: int
    applied_scn: int
    schema_id: int
    shape: str
    now: tuple[str, ...]
    columns: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Draft:
    """A file that nobody reads yet.

    Attributes:
        path: of the file.
        head: what it says, and will be once it is published.
    """

    path: Path
    head: Head


def head_of(folder: Path) -> Head | None:
    """Return what the newest file of a table says, None when there is none.

    Raises:
        CorruptTable: it does not read, or is none of ours.
    """
    try:
        numbers = [int(match[1]) for name in os.listdir(folder) if (match := _NAME.fullmatch(name))]
    except FileNotFoundError:
        return None
    if not numbers:
        return None
    path = _path(folder, max(numbers))
    try:
        said = json.loads((pq.read_metadata(path).metadata or {})[_SAYS])
        head = Head(**{**said, "now": tuple(said["now"])})
        if head.version != max(numbers):
            raise ValueError("the name says another number")
    except (OSError, KeyError, ValueError, TypeError, pa.ArrowException) as error:
        raise CorruptTable(
            f"The file {path.name} of the table {folder.name} is no file of changes ({type(error).__name__}).",
            next_step="move it elsewhere; the batch is tried again.",
        ) from error
    return head


def told_changes(head: Head, schema: TableSchema) -> list[ColumnChange]:
    """Return how the next file's columns will differ from the newest one's.

    Args:
        head: of the newest file.
        schema: with the columns that the mode adds.
    """
    found, wanted = [], table_arrow_schema(schema)
    for name in head.now:
        if name not in schema.names:
            found.append(ColumnChange(ChangeKind.DROP, name, "older files keep it"))
    for field in wanted:
        held = parse_type(head.columns[field.name]) if field.name in head.columns else None
        if held is not None and held != field.type:
            detail = f"from {render_type(held)} to {render_type(field.type)}"
            fits = can_widen(held, field.type)
            kind = ChangeKind.WIDEN if fits else ChangeKind.REFUSED
            found.append(ColumnChange(kind, field.name, detail))
        elif field.name not in head.now:
            found.append(ColumnChange(ChangeKind.ADD, field.name, render_type(field.type)))
    return found


def refuse(head: Head, schema: TableSchema) -> None:
    """Refuse a version whose files could not be read together with older ones.

    Raises:
        IncompatibleSchemaChange: naming the column.
    """
    for change in told_changes(head, schema):
        if change.kind is ChangeKind.REFUSED:
            raise IncompatibleSchemaChange(
                f"{schema.table}.{change.column} changed {change.detail}, and older files have it as it was.",
                next_step=(
                    f"move the files of {schema.table} away and copy it again: "
                    f"headrace dump start FILE --table {schema.table}."
                ),
            )


def write_draft(
    folder: Path, pipeline: str, schema: TableSchema, changes: pa.Table, scn: int
) -> Draft:
    """Write a batch's changes, in order of ``(_scn, _ord)``, into a file that nobody reads yet.

    Args:
        folder: of the table.
        pipeline: that writes.
        schema: version of the changes.
        changes: as of `headrace.lake.modes.logged_schema`, in order.
        scn: what the table reflects afterwards.

    Raises:
        TargetConflict: the table is further than ``scn``, or another pipeline's.
        CorruptTable: its newest file does not read.
        OSError: the folder refused.
    """
    target, before = shaped(schema, Mode.APPEND), head_of(folder)
    _refuse_others(before, pipeline, schema, scn)
    wanted = table_arrow_schema(target)
    rows = named_missing(schema, changes).select(wanted.names).cast(wanted)
    held = dict(before.columns) if before else {}
    head = Head(
        version=before.version + 1 if before else 0,
        pipeline=pipeline,
        after_scn=before.applied_scn if before else 0,
        applied_scn=scn,
        schema_id=schema.schema_id,
        shape=target.shape.text if target.shape else "",
        now=tuple(wanted.names),
        columns=held | {field.name: render_type(field.type) for field in wanted},
    )
    said = {_SAYS: json.dumps({name: getattr(head, name) for name in Head.__slots__})}
    path = folder / f".{uuid.uuid4()}.draft"
    folder.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        with pq.ParquetWriter(file, wanted, compression="snappy", store_schema=False) as writer:
            writer.write_table(rows)
            writer.add_key_value_metadata(said)
        file.flush()
        os.fsync(file.fileno())
    return Draft(path, head)


def publish(draft: Draft) -> None:
    """Give a draft its number: from then on readers see it, whole.

    Raises:
        TargetConflict: another writer has that number already; the draft is gone.
        OSError: the folder refused.
    """
    folder = draft.path.parent
    try:
        os.link(draft.path, _path(folder, draft.head.version))
    except FileExistsError as error:
        raise TargetConflict(
            f"Another writer added file {draft.head.version} to the table {folder.name}.",
            next_step="let one headrace process write the table; the batch is tried again.",
        ) from error
    finally:
        draft.path.unlink(missing_ok=True)
    sync_folder(folder)
    if draft.head.version == 0:
        sync_folder(folder.parent)


def forget_drafts(folder: Path) -> None:
    """Remove what a crash left behind, once nobody can be at work on it any more."""
    for path in folder.glob(".*.draft"):
        if path.stat().st_mtime < time.time() - _DRAFTS_AFTER_S:
            path.unlink(missing_ok=True)


def _refuse_others(before: Head | None, pipeline: str, schema: TableSchema, scn: int) -> None:
    if before is None:
        return
    if before.pipeline != pipeline:
        raise TargetConflict(
            f"The target table of {schema.table} is one of the pipeline {before.pipeline}.",
            next_step="give each pipeline a folder of its own; the batch is tried again.",
        )
    check_ahead(schema.table, before.applied_scn, scn)


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:020d}.parquet"
