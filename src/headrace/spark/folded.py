"""The folded changes of one step as a DataFrame, whose rows are read and folded in tasks.

The tasks are plain `mapInArrow` ones: their Python workers live on from batch to batch, while a Python data source
starts new processes to plan each read, which costs more than most batches do.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.changelog.reader import ChangeLogReader
from headrace.fold import folded_schema
from headrace.model.schema import TableSchema
from headrace.registry.file import FileRegistry
from headrace.spark.columns import spark_ddl
from headrace.spark.plan import Step
from headrace.spark.rows import SLICE_COLUMN, combine_slices, folded_batches
from headrace.spark.slices import cut

__all__ = ["folded_frame"]


def folded_frame(
    session: SparkSession, changelog: Path, schema: TableSchema, step: Step, slices: int
) -> DataFrame:
    """Return the folded form of a step's changes.

    Args:
        session: the table's own.
        changelog: folder of the change log, which executors reach by the same name.
        schema: version to bring the changes to.
        step: the stretch of the log.
        slices: most tasks that fold it.
    """
    ids = step.schema_ids
    parts = cut(step.refs, step.after_scn, step.upto_scn, slices)

    def fold_slice(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader, held = ChangeLogReader(changelog), FileRegistry(changelog / "schemas")
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from folded_batches(reader, held, schema, ids, parts[number])

    form = spark_ddl(folded_schema(schema))
    frame = session.range(0, len(parts), 1, len(parts)).mapInArrow(
        fold_slice, f"{SLICE_COLUMN} INT, {form}"
    )
    if len(parts) == 1:
        return frame.drop(SLICE_COLUMN)
    return frame.repartition(1).mapInArrow(lambda rows: combine_slices(schema, rows), form)
