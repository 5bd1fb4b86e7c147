"""The files of one batch of each table, written in tasks: small batches share a job, a large one has its own.

In: tables as they are, and their folded changes. Out: the log actions that would make the files part of each table.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.lake.batch import commit_batch, form_of
from headrace.lake.commit import Action
from headrace.lake.snapshot import Snapshot
from headrace.spark.targets.base import Folded, TableBatch
from headrace.spark.together import Work, attempt, run_together

__all__ = ["write_files"]

Planned = tuple[Snapshot, TableBatch]
Written = Callable[[Iterator[pa.RecordBatch]], list[Action]]


def write_files(
    session: SparkSession, planned: Sequence[Planned], parallel: int
) -> list[list[Action] | Exception]:
    """Return for each table the actions of its commit, or why there are none.

    Args:
        session: of the jobs.
        planned: tables before, and what comes.
        parallel: tasks of the job that tables share, and jobs at the same time.
    """
    shared: dict[int, Work] = {}
    with ThreadPoolExecutor(parallel) as pool:
        large: dict[int, Future[object]] = {}
        for place, (snapshot, batch) in enumerate(planned):
            write, inside = _writer(snapshot, batch), batch.folded.inside()
            if inside is None:
                large[place] = pool.submit(_in_its_own_job, write, batch.folded)
            else:
                shared[place] = Work(batch.folded.rows, _bound(write, inside), batch.alone)
        together = run_together(session, list(shared.values()), parallel) if shared else []
        outcomes = dict(zip(shared, together, strict=True))
        outcomes |= {place: job.result() for place, job in large.items()}
    return [outcomes[place] for place in range(len(planned))]  # type: ignore[misc]


def _writer(snapshot: Snapshot, batch: TableBatch) -> Written:
    """Return the function that writes a table's files, given its folded changes."""
    schema, mode, complete = batch.schema, batch.mode, batch.complete
    form = form_of(schema, mode)

    def write(batches: Iterator[pa.RecordBatch]) -> list[Action]:
        rows = pa.Table.from_batches(batches, schema=form).combine_chunks()
        return commit_batch(snapshot, schema, mode, rows, complete=complete)

    return write


def _bound(write: Written, read: Callable[[], Iterator[pa.RecordBatch]]) -> Callable[[], object]:
    return lambda: write(read())


def _in_its_own_job(write: Written, folded: Folded) -> object:
    def kernel(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"outcome": [attempt(lambda: write(batches))]})

    try:
        (row,) = folded.through(kernel, "outcome BINARY").collect()
    except Exception as error:  # noqa: BLE001 - the table's outcome, as any other
        return error
    return pickle.loads(row.outcome)
