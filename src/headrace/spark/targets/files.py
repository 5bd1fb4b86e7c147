"""The files of one batch of each table, written in tasks.

In: tables as they are, and their folded changes. Out: the log actions that would make the files part of each table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.lake.batch import commit_batch
from headrace.lake.commit import Action
from headrace.lake.snapshot import Snapshot
from headrace.lake.stages import timed
from headrace.spark.targets.base import TableBatch
from headrace.spark.targets.tasks import Doing, in_tasks

__all__ = ["Written", "write_files"]

Planned = tuple[Snapshot, TableBatch]


@dataclass(frozen=True, slots=True)
class Written:
    """What came of one table's batch.

    Attributes:
        actions: of its commit.
        seconds: of the stages ``probe`` and ``write``.
    """

    actions: list[Action]
    seconds: Mapping[str, float]


def write_files(
    session: SparkSession, planned: Sequence[Planned], parallel: int
) -> list[Written | Exception]:
    """Return for each table the actions of its commit, or why there are none.

    Args:
        session: of the jobs.
        planned: tables before, and what comes.
        parallel: tasks of the job that tables share, and jobs at the same time.
    """
    works = [(batch, _writer(snapshot, batch)) for snapshot, batch in planned]
    return in_tasks(session, works, parallel)


def _writer(snapshot: Snapshot, batch: TableBatch) -> Doing:
    """Return the function that writes a table's files, given its folded changes."""
    schema, mode, complete = batch.schema, batch.mode, batch.complete

    def write(rows: pa.Table) -> Written:
        with timed() as seconds:
            actions = commit_batch(snapshot, schema, mode, rows, complete=complete)
        return Written(actions, seconds)

    return write
