"""Files of changes: Arrow kernels in Spark's tasks write them, the driver gives them their numbers.

In: the changes of tables, in tasks. Out: one Parquet file of each table and batch, whose footer has the applied SCN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.errors import HeadraceError
from headrace.lake.aside import discarded
from headrace.lake.capabilities import PARQUET
from headrace.lake.change_files import (
    Draft,
    Head,
    forget_drafts,
    head_of,
    publish,
    refuse,
    write_draft,
)
from headrace.lake.ledger import check_folder, table_path
from headrace.lake.pieces import Sizes
from headrace.lake.policies import DEFAULTS, Policies
from headrace.lake.rewrite import Rewritten
from headrace.model.schema import TableId, TableSchema
from headrace.observe.failpoints import failpoint
from headrace.spark.failures import translate
from headrace.spark.targets.base import Copies, TableBatch, TargetState
from headrace.spark.targets.tables import translated
from headrace.spark.targets.tasks import Doing, in_tasks

__all__ = ["ParquetTarget"]


class ParquetTarget:
    """Tables of changes under one folder.

    Args:
        spark: a session of the application, used for all tables.
        lake: folder of all tables.
        pipeline: name that the files carry.
        parallel: tasks that tables share.
    """

    capabilities = PARQUET
    copies: Copies | None = None

    def __init__(
        self, spark: SparkSession, lake: Path, pipeline: str, *, parallel: int = 2
    ) -> None:
        self._spark = spark
        self._lake = lake.absolute()
        self._pipeline = pipeline
        self._parallel = parallel

    def session(self, _table: TableId) -> SparkSession:
        """Return the session: no table has settings of its own."""
        return self._spark

    def state(self, table: TableId) -> TargetState | None:
        """Return what the newest file says, None when there is none."""
        head = head_of(self._folder(table))
        return None if head is None else _state(head)

    def evolve(self, schema: TableSchema, _policies: Policies = DEFAULTS) -> TargetState:
        """Look whether files of a version can be read with those that there are; each file has its own columns.

        Raises:
            IncompatibleSchemaChange: they cannot, or the table has no folder of its own.
        """
        check_folder(schema.table)
        head = head_of(self._folder(schema.table))
        if head is None:
            return TargetState(-1, 0, schema.schema_id)
        if head.schema_id != schema.schema_id:
            refuse(head, schema)
        return TargetState(head.version, head.applied_scn, schema.schema_id, head.shape)

    def apply(self, batches: Sequence[TableBatch]) -> list[TargetState | HeadraceError]:
        """Add a file of each table's changes, which carries the position that they reach."""
        works = [(batch, self._writer(batch)) for batch in batches]
        written = in_tasks(self._spark, works, self._parallel)
        return [
            translated(self._publish(draft), batch.schema)
            for batch, draft in zip(batches, written, strict=True)
        ]

    def maintain(
        self, _keys: Mapping[TableId, tuple[str, ...]], _sizes: Sizes, _most: int
    ) -> dict[TableId, Rewritten | HeadraceError | None]:
        """Do nothing: a file of changes stays as it was written."""
        return {}

    def drop(self, table: TableId) -> None:
        """Remove a table's folder, if this pipeline made it."""
        head = head_of(self._folder(table))
        if head is None or head.pipeline != self._pipeline:
            return
        try:
            discarded(self._folder(table))
        except OSError as error:
            raise translate(error, table, None) from error

    def tidy(self, table: TableId, _promised: int) -> None:
        """Let go of what crashes left behind; no file of changes ever goes."""
        with suppress(OSError):
            forget_drafts(self._folder(table))

    def _writer(self, batch: TableBatch) -> Doing:
        folder, pipeline = self._folder(batch.schema.table), self._pipeline
        schema, scn = batch.schema, batch.scn

        def write(changes: pa.Table) -> Draft:
            return write_draft(folder, pipeline, schema, changes, scn)

        return write

    @staticmethod
    def _publish(draft: Draft | Exception) -> TargetState | Exception:
        """Make a table's file one that readers see; return what it says, or what stood in the way."""
        if isinstance(draft, Exception):
            return draft
        failpoint("apply.files_written")
        try:
            publish(draft)
        except Exception as error:  # noqa: BLE001 - the table's outcome, no other's
            return error
        failpoint("apply.after_commit")
        return _state(draft.head)

    def _folder(self, table: TableId) -> Path:
        return table_path(self._lake, table)


def _state(head: Head) -> TargetState:
    return TargetState(head.version, head.applied_scn, head.schema_id, head.shape)
