"""One batch of one table, whatever its mode: the log actions of its commit, their files written."""

from __future__ import annotations

import pyarrow as pa

from headrace.fold import folded_schema
from headrace.lake.append import commit_append
from headrace.lake.commit import Action
from headrace.lake.history import commit_history
from headrace.lake.keyed import commit_keyed
from headrace.lake.modes import Mode, logged_schema
from headrace.lake.multiset import commit_multiset
from headrace.lake.snapshot import Snapshot
from headrace.lake.soft_delete import commit_soft_delete
from headrace.model.schema import KeyCheck, TableSchema

__all__ = ["commit_batch", "form_of"]


def form_of(schema: TableSchema, mode: Mode) -> pa.Schema:
    """Return what a mode's batches look like: the folded form of a mirror, for all others the changes themselves."""
    return folded_schema(schema) if mode is Mode.MIRROR else logged_schema(schema)


def commit_batch(
    snapshot: Snapshot, schema: TableSchema, mode: Mode, rows: pa.Table, *, complete: bool
) -> list[Action]:
    """Return the actions that bring a table behind a batch.

    Args:
        snapshot: the table before.
        schema: version of the rows.
        mode: of the table.
        rows: the batch, as of `form_of`.
        complete: whether every row of the source is in the table.

    Raises:
        MissingBase: a complete table lacks the row that a change patches; nothing was written.
        NegativeCount: a complete table without a key holds a row less often than it is removed; likewise.
        CorruptTable: a file of the table does not read.
        OSError: the folder refused.
    """
    if mode is Mode.APPEND:
        return commit_append(snapshot, schema, rows)
    if mode is Mode.SOFT_DELETE:
        return commit_soft_delete(snapshot, schema, rows, complete=complete)
    if mode is Mode.HISTORY:
        return commit_history(snapshot, schema, rows, complete=complete)
    commit = commit_multiset if schema.key_check is KeyCheck.NONE else commit_keyed
    return commit(snapshot, schema, rows, complete=complete)
