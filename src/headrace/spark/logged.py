"""The changes of one step as they came, for tables that keep more than the rows there are.

In: a stretch of the change log. Out: its changes with the time of their commits, truncates among them, read in the task
that writes them (`headrace.lake.modes.logged_schema`). Nothing is folded, so one task takes the whole of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.changelog.reader import ChangeLogReader
from headrace.changelog.refs import BlockRef
from headrace.lake.modes import COMMITTED_AT, logged_schema
from headrace.model.block import Block
from headrace.model.change import META, TRUNCATE, change_schema
from headrace.model.schema import TableSchema
from headrace.registry.file import FileRegistry
from headrace.spark.columns import spark_ddl
from headrace.spark.plan import Step
from headrace.spark.rows import Versions, rows_of_block, truncates_of
from headrace.spark.slices import Slice
from headrace.spark.targets.base import Kernel

__all__ = ["LoggedStep"]


class LoggedStep:
    """A step's changes, read each time they are asked for; arguments as of a folded step."""

    def __init__(
        self,
        session: SparkSession,
        changelog: Path,
        schema: TableSchema,
        step: Step,
        versions: Versions,
        ignored: Collection[str] = (),
    ) -> None:
        self._session = session
        self._schema = schema
        self.rows = step.rows
        self._read = _reader(changelog, schema, step, versions, ignored)

    def frame(self) -> DataFrame:
        """Return them as rows for Spark's own statements."""
        return self.through(lambda rows: rows, spark_ddl(logged_schema(self._schema)))

    def through(self, kernel: Kernel, ddl: str) -> DataFrame:
        """Return what ``kernel`` makes of the whole of it, in one task."""
        read = self._read

        def given(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            # A worker that leaves its input unread is thrown away.
            for _ in numbers:
                yield from kernel(read())

        return self._session.range(0, 1, 1, 1).mapInArrow(given, ddl)

    def inside(self) -> Callable[[], Iterator[pa.RecordBatch]]:
        """Return what reads the whole of it in a task."""
        return self._read


def _reader(
    changelog: Path,
    schema: TableSchema,
    step: Step,
    versions: Versions,
    ignored: Collection[str],
) -> Callable[[], Iterator[pa.RecordBatch]]:
    part = Slice(0, step.after_scn, step.upto_scn, step.refs)

    def read() -> Iterator[pa.RecordBatch]:
        registry = FileRegistry(changelog / "schemas")
        for block in ChangeLogReader(changelog).read(part.refs, versions):
            yield from _logged(block, registry, schema, versions, part, ignored)

    return read


def _logged(
    block: Block,
    registry: FileRegistry,
    schema: TableSchema,
    versions: Versions,
    part: Slice[BlockRef],
    ignored: Collection[str],
) -> Iterator[pa.RecordBatch]:
    """Yield a block's changes of a table, each with the time of its commit."""
    batches = list(rows_of_block(block, registry, schema, versions, part, ignored))
    wiped = list(truncates_of(block, schema, part, ignored))
    rows = pa.Table.from_batches(batches, schema=change_schema(schema))
    if wiped:
        both = pa.concat_tables([rows, _truncates(schema, wiped)])
        rows = both.sort_by([("_scn", "ascending"), ("_ord", "ascending")])
    if rows.num_rows:
        place = np.searchsorted(block.index["scn"], rows["_scn"].to_numpy())
        form = logged_schema(schema)
        at = pa.array(block.index["commit_us"][place].astype(np.int64))
        at = at.cast(form.field(COMMITTED_AT).type)
        timed = rows.add_column(len(META), form.field(COMMITTED_AT), at)
        yield from timed.combine_chunks().to_batches()


def _truncates(schema: TableSchema, places: list[tuple[int, int]]) -> pa.Table:
    """Return truncates as change rows without cells."""
    form = change_schema(schema)
    cells = {
        "_scn": pa.array([scn for scn, _ in places], pa.int64()),
        "_ord": pa.array([order for _, order in places], pa.int32()),
        "_op": pa.array([TRUNCATE] * len(places), pa.string()),
    }
    columns = [cells.get(field.name, pa.nulls(len(places), field.type)) for field in form]
    return pa.table(columns, schema=form)
