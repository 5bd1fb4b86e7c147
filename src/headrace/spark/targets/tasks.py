"""Work on the folded changes of each table, in tasks: small batches share a job, a large one has its own."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.lake.batch import form_of
from headrace.spark.targets.base import TableBatch
from headrace.spark.together import Work, attempt, run_together

__all__ = ["Doing", "in_its_own_job", "in_tasks", "whole"]

Doing = Callable[[pa.Table], object]
"""Work on the whole of a table's batch; what it returns is pickled."""


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
                shared[place] = Work(batch.folded.rows, _bound(batch, do, inside), batch.alone)
        together = run_together(session, list(shared.values()), parallel) if shared else []
        outcomes = dict(zip(shared, together, strict=True))
        outcomes |= {place: job.result() for place, job in large.items()}
    return [outcomes[place] for place in range(len(planned))]


def whole(form: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.Table:
    """Return a table's batch as one table of a form."""
    return pa.Table.from_batches(batches, schema=form).combine_chunks()


def _bound(
    batch: TableBatch, do: Doing, read: Callable[[], Iterator[pa.RecordBatch]]
) -> Callable[[], object]:
    form = form_of(batch.schema, batch.mode)
    return lambda: do(whole(form, read()))


def in_its_own_job(batch: TableBatch, do: Doing) -> object:
    """Return what the work of one table returned, or the exception that it ended with."""
    form, folded = form_of(batch.schema, batch.mode), batch.folded

    def kernel(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        outcome = attempt(lambda: do(whole(form, batches)))
        yield pa.RecordBatch.from_pydict({"outcome": [outcome]})

    try:
        (row,) = folded.through(kernel, "outcome BINARY").collect()
    except Exception as error:  # noqa: BLE001 - the table's outcome, as any other
        return error
    return pickle.loads(row.outcome)
