"""The folded changes of one step, whose rows are read and folded in tasks.

The tasks are plain `mapInArrow` ones: their Python workers live on from batch to batch, while a Python data source
starts new processes to plan each read, which costs more than most batches do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.changelog.reader import ChangeLogReader
from headrace.fold import folded_schema
from headrace.model.schema import TableSchema
from headrace.registry.file import FileRegistry
from headrace.spark.columns import spark_ddl
from headrace.spark.plan import Step
from headrace.spark.rows import SLICE_COLUMN, Versions, combine_slices, folded_batches
from headrace.spark.slices import cut
from headrace.spark.targets.base import Kernel

__all__ = ["FoldedStep"]


class FoldedStep:
    """The folded form of a step's changes, made in tasks each time it is asked for.

    Args:
        session: the table's own.
        changelog: folder of the change log, which executors reach by the same name.
        schema: version to bring the changes to.
        step: the stretch of the log.
        versions: of the changes.
        slices: most tasks that fold it.
        ignored: operations that are left out (`headrace.spark.rows.rows_of_block`).
    """

    def __init__(
        self,
        session: SparkSession,
        changelog: Path,
        schema: TableSchema,
        step: Step,
        versions: Versions,
        slices: int,
        ignored: Collection[str] = (),
    ) -> None:
        self._session = session
        self._changelog = changelog
        self._schema = schema
        self._versions = versions
        self._ignored = ignored
        self.rows = step.rows
        self._parts = cut(step.refs, step.after_scn, step.upto_scn, slices)

    def frame(self) -> DataFrame:
        """Return it as rows for Spark's own statements."""
        return self.through(_as_they_are, spark_ddl(folded_schema(self._schema)))

    def through(self, kernel: Kernel, ddl: str) -> DataFrame:
        """Return what ``kernel`` makes of the whole of it, in one task."""
        schema = self._schema
        fold_slices = self._folder()
        tasks = self._session.range(0, len(self._parts), 1, len(self._parts))
        if len(self._parts) == 1:
            return tasks.mapInArrow(
                lambda numbers: kernel(_without_place(schema, fold_slices(_numbers(numbers)))), ddl
            )
        form = spark_ddl(folded_schema(schema))
        folded = tasks.mapInArrow(
            lambda numbers: fold_slices(_numbers(numbers)), f"{SLICE_COLUMN} INT, {form}"
        )
        return folded.repartition(1).mapInArrow(
            lambda rows: kernel(combine_slices(schema, rows)), ddl
        )

    def inside(self) -> Callable[[], Iterator[pa.RecordBatch]] | None:
        """Return what reads and folds the whole of it in a task, None when it is several slices."""
        if len(self._parts) > 1:
            return None
        schema, fold_slices = self._schema, self._folder()
        return lambda: _without_place(schema, fold_slices(iter([0])))

    def _folder(self) -> Callable[[Iterator[int]], Iterator[pa.RecordBatch]]:
        """Return the function that folds the slices whose numbers it is given."""
        changelog, schema, parts = self._changelog, self._schema, self._parts
        versions, ignored = self._versions, self._ignored

        def fold_slices(numbers: Iterator[int]) -> Iterator[pa.RecordBatch]:
            reader, held = ChangeLogReader(changelog), FileRegistry(changelog / "schemas")
            for number in numbers:
                yield from folded_batches(reader, held, schema, versions, parts[number], ignored)

        return fold_slices


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _without_place(
    schema: TableSchema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    names = folded_schema(schema).names
    return (batch.select(names) for batch in batches)


def _as_they_are(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
