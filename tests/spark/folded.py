"""A folded form that a test made, where a target expects one that tasks make."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.spark.targets.base import Kernel


class GivenFolded:
    """The rows travel with the task."""

    def __init__(self, session: SparkSession, rows: pa.Table) -> None:
        self._session = session
        self._rows = rows

    def frame(self) -> DataFrame:
        return self._session.createDataFrame(self._rows)

    def through(self, kernel: Kernel, ddl: str) -> DataFrame:
        rows = self._rows.to_batches()

        def given(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            # A worker that leaves its input unread is thrown away.
            for _ in numbers:
                yield from kernel(iter(rows))

        return self._session.range(0, 1, 1, 1).mapInArrow(given, ddl)
