"""A folded form that a test made, where a target expects one that tasks make."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import HeadraceError
from headrace.model.schema import TableSchema
from headrace.spark.again import Ask
from headrace.spark.apply import Applier, ApplyOptions
from headrace.spark.targets.base import Folded, Kernel, TableBatch, Target, TargetState


def apply_one(
    target: Target, schema: TableSchema, folded: Folded, scn: int, *, complete: bool
) -> TargetState:
    """Apply one table's batch; raises what it ended with."""
    (outcome,) = target.apply([TableBatch(schema, folded, scn, complete)])
    if isinstance(outcome, HeadraceError):
        raise outcome
    return outcome


class GivenFolded:
    """The rows travel with the task."""

    def __init__(self, session: SparkSession, rows: pa.Table) -> None:
        self._session = session
        self._rows = rows
        self.rows = rows.num_rows

    def inside(self) -> Callable[[], Iterator[pa.RecordBatch]]:
        rows = self._rows.to_batches()
        return lambda: iter(rows)

    def frame(self) -> DataFrame:
        return self._session.createDataFrame(self._rows)

    def through(self, kernel: Kernel, ddl: str) -> DataFrame:
        rows = self._rows.to_batches()

        def given(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            # A worker that leaves its input unread is thrown away.
            for _ in numbers:
                yield from kernel(iter(rows))

        return self._session.range(0, 1, 1, 1).mapInArrow(given, ddl)


class Dying(GivenFolded):
    """The task that reads them ends its process."""

    def inside(self) -> Callable[[], Iterator[pa.RecordBatch]]:
        def die() -> Iterator[pa.RecordBatch]:
            os.kill(os.getpid(), signal.SIGKILL)
            yield from ()

        return die


def run_to(options: ApplyOptions, target: Target, *ends: int, ask: Ask | None = None) -> Applier:
    """Start a fresh applier, as after a restart, and apply up to each end that is ahead."""
    applier = Applier(options, target, ask=ask)
    try:
        start = applier.begin()
        begin = start.from_scn
        for end in ends:
            # The first batch after a restart ends where the furthest table is.
            end = max(end, start.first_end)
            if end > begin:
                applier.process(begin, end)
                begin = end
    finally:
        applier.close()
    return applier
