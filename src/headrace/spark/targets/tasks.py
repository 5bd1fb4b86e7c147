"""Work on the folded changes of each table, in tasks: small batches share a job, a large one has its own."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.fold import folded_schema
from headrace.model.schema import TableSchema
from headrace.spark.targets.base import TableBatch
from headrace.spark.together import Work, attempt, run_together

__all__ = ["Doing", "in_its_own_job", "in_tasks", "whole"]

Doing = Callable[[pa.Table], object]
"""Work on the whole of a table's folded form; what it returns is pickled."""


def in_tasks(
    session: SparkSession, planned: Sequence[tuple[TableBatch, Doing]], parallel: int
) -> list[Any]:
    """Return for each table what its work returned, or the exception that it ended with.

    Args:
        session: of the jobs.
        planned: batches, and what to do with each.
        parallel: tasks of the job that tables share, and jobs at the same time.
    """
    shared: dict[int, Work] = {}
    with ThreadPoolExecutor(parallel) as pool:
        large: dict[int, Future[object]] = {}
        for place, (batch, do) in enumerate(planned):
            inside = batch.folded.inside()
            if inside is None:
                large[place] = pool.submit(in_its_own_job, batch, do)
            else:
                shared[place] = Work(
                    batch.folded.rows, _bound(batch.schema, do, inside), batch.alone
                )
        together = run_together(session, list(shared.values()), parallel) if shared else []
        outcomes = dict(zip(shared, together, strict=True))
        outcomes |= {place: job.result() for place, job in large.items()}
    return [outcomes[place] for place in range(len(planned))]


def whole(schema: TableSchema, batches: Iterator[pa.RecordBatch]) -> pa.Table:
    """Return the folded form of a table's batch as one table."""
    return pa.Table.from_batches(batches, schema=folded_schema(schema)).combine_chunks()


def _bound(
    schema: TableSchema, do: Doing, read: Callable[[], Iterator[pa.RecordBatch]]
) -> Callable[[], object]:
    return lambda: do(whole(schema, read()))


def in_its_own_job(batch: TableBatch, do: Doing) -> object:
    """Return what the work of one table returned, or the exception that it ended with."""
    schema, folded = batch.schema, batch.folded

    def kernel(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        outcome = attempt(lambda: do(whole(schema, batches)))
        yield pa.RecordBatch.from_pydict({"outcome": [outcome]})

    try:
        (row,) = folded.through(kernel, "outcome BINARY").collect()
    except Exception as error:  # noqa: BLE001 - the table's outcome, as any other
        return error
    return pickle.loads(row.outcome)
