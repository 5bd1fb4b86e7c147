"""Delta tables by commits of our own: Arrow kernels in Spark's tasks, one log entry by the driver.

In: the folded form of one table's changes, in a task. Out: one version of the table that carries rows and applied SCN
(Delta's ``txn`` action). Rows never come to the driver: it sees the names of the files that the task wrote.

Source: docs/paper_map.md, decision table of the apply step.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.errors import HeadraceError, TargetConflict
from headrace.fold import folded_schema
from headrace.lake.actions import check_writable
from headrace.lake.checkpoint import is_due, write_checkpoint
from headrace.lake.commit import Action, CommitConflict, commit_info, put_commit, transaction
from headrace.lake.keyed import commit_keyed
from headrace.lake.multiset import commit_multiset
from headrace.lake.settle import discard
from headrace.lake.snapshot import Snapshot
from headrace.model.schema import KeyCheck, TableId, TableSchema
from headrace.observe.failpoints import failpoint
from headrace.spark.failures import translate
from headrace.spark.targets.base import Folded, TargetState
from headrace.spark.targets.tables import DeltaTables, capabilities

__all__ = ["DeltaTarget"]

_ATTEMPTS = 5
"""Tries of one batch while other writers commit in between."""


class DeltaTarget:
    """Delta tables under one folder, written by our own commits.

    Args:
        spark: a session of the application, used for all tables.
        lake: folder of all tables.
        pipeline: name under which positions are committed.
        vectors: whether new tables may use deletion vectors; without them every touched file is written again.
    """

    capabilities = capabilities("delta")

    def __init__(
        self, spark: SparkSession, lake: Path, pipeline: str, *, vectors: bool = True
    ) -> None:
        self._spark = spark
        self._tables = DeltaTables(lake, pipeline, vectors=vectors)
        self.state = self._tables.state
        self.evolve = self._tables.evolve
        self.tidy = self._tables.tidy

    def session(self, _table: TableId) -> SparkSession:
        """Return the session: no table has settings of its own."""
        return self._spark

    def apply(
        self, schema: TableSchema, folded: Folded, scn: int, *, complete: bool
    ) -> TargetState:
        """Commit folded changes and the position they reach in one version of the table."""
        table = schema.table
        try:
            for attempt in range(1, _ATTEMPTS + 1):
                snapshot = self._tables.existing(table)
                self._check(snapshot, schema, scn)
                actions = _in_a_task(snapshot, schema, folded, complete=complete)
                failpoint("apply.files_written")
                position = transaction(self._tables.application(table), scn)
                info = commit_info("HEADRACE APPLY", scn=str(scn))
                try:
                    put_commit(snapshot.folder, snapshot.version + 1, [info, position, *actions])
                    break
                except CommitConflict:
                    discard(snapshot, actions)
                    if attempt == _ATTEMPTS:
                        raise
            written = self._tables.existing(table)
            if is_due(written.version, written.properties):
                state = self._tables.followed(table).state()
                write_checkpoint(written.folder, written.version, state)
        except Exception as error:
            raise translate(error, table, schema) from error
        return self._tables.state_of(written, table)

    def _check(self, snapshot: Snapshot, schema: TableSchema, scn: int) -> None:
        """Refuse a table that we cannot write, or that another process of ours has brought further.

        Raises:
            TargetConflict: columns or position are not as we left them.
            UnsupportedTableFeature: somebody switched on what we do not write.
        """
        table = schema.table
        check_writable(snapshot.protocol, snapshot.properties, snapshot.folder.name)
        if snapshot.partition_columns or set(snapshot.schema.names) != set(schema.names):
            raise TargetConflict(
                f"The columns of the target table of {table} are not those that headrace made.",
                next_step="undo the change of its columns; the batch is tried again.",
            )
        applied = self._tables.state_of(snapshot, table).applied_scn
        if applied >= scn:
            raise TargetConflict(
                f"The target table of {table} is at SCN {applied} before a commit of SCN {scn}.",
                next_step="let one headrace process write the table; the batch is tried again.",
            )


def _in_a_task(
    snapshot: Snapshot, schema: TableSchema, folded: Folded, *, complete: bool
) -> Sequence[Action]:
    """Return the actions of a commit whose files a task has written."""
    commit = commit_multiset if schema.key_check is KeyCheck.NONE else commit_keyed
    form = folded_schema(schema)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(batches, schema=form).combine_chunks()
        try:
            outcome: object = commit(snapshot, schema, rows, complete=complete)
        except (HeadraceError, OSError) as error:
            # Spark has no part in it: a task that ends well is not tried again, and fills no log.
            outcome = error
        yield pa.RecordBatch.from_pydict({"outcome": [pickle.dumps(outcome)]})

    (row,) = folded.through(write, "outcome BINARY").collect()
    outcome = pickle.loads(row.outcome)
    if isinstance(outcome, Exception):
        raise outcome
    return list(outcome)
