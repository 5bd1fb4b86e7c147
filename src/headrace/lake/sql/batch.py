"""One batch of one table, whatever its mode: as rows to stage, and from the staging table into the target."""

from __future__ import annotations

import pyarrow as pa

from headrace.lake.modes import Mode
from headrace.lake.sql.dialect import Dialect
from headrace.lake.sql.keep import append, keep
from headrace.lake.sql.merge import merge
from headrace.lake.sql.session import Session
from headrace.lake.sql.staged import Staged, staged_rows
from headrace.lake.sql.staged_versions import StagedVersions, staged_changes, staged_versions
from headrace.model.schema import TableId, TableSchema

__all__ = ["apply_batch", "rows_to_stage"]


def rows_to_stage(
    dialect: Dialect, schema: TableSchema, mode: Mode, rows: pa.Table
) -> tuple[pa.Table, Staged]:
    """Return what a batch puts into a staging table, and what that is; the name is the caller's to give.

    Args:
        dialect: of the warehouse.
        schema: version of the rows.
        mode: of the table.
        rows: the batch, as of `headrace.lake.batch.form_of`.

    Raises:
        FoldError: changes that have no defined effect.
    """
    if mode is Mode.MIRROR:
        return staged_rows(schema, rows, tells_zeros=dialect.tells_zeros)
    return staged_changes(schema, rows) if mode is Mode.APPEND else staged_versions(schema, rows)


def apply_batch(
    session: Session,
    dialect: Dialect,
    place: TableId,
    schema: TableSchema,
    mode: Mode,
    staged: Staged,
    *,
    complete: bool,
) -> None:
    """Bring a table's rows behind a batch, inside a transaction.

    Args:
        session: in that transaction.
        dialect: of the warehouse.
        place: of the target table.
        schema: version of the staged rows.
        mode: of the table.
        staged: what `rows_to_stage` said, with its name.
        complete: whether every row of the source is in the table.

    Raises:
        MissingBase: a complete table lacks the row that a change patches.
        NegativeCount: a complete table without a key holds a row less often than it is removed.
    """
    if mode is Mode.MIRROR:
        merge(session, dialect, place, schema, staged, complete=complete)
    elif isinstance(staged, StagedVersions):
        keep(session, dialect, place, schema, mode, staged, complete=complete)
    else:
        append(session, dialect, place, schema, staged)
