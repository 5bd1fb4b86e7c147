"""Work of several tables in one Spark job: a job costs more than the work of a small batch does.

In: functions that run where the rows are. Out: what each returned, or what it raised; one that fails, or takes its
Python worker along, holds no other back.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

__all__ = ["Work", "attempt", "run_together"]


@dataclass(frozen=True, slots=True)
class Work:
    """One table's.

    Attributes:
        rows: how much it is, about; decides which works share a task.
        do: runs in a task; what it returns is pickled.
        alone: whether no other work shall share its fate.
    """

    rows: int
    do: Callable[[], object]
    alone: bool = False


def run_together(session: SparkSession, works: Sequence[Work], tasks: int) -> list[object]:
    """Return what each work returned, or the exception that it ended with.

    Args:
        session: of the job.
        works: in any order.
        tasks: most tasks of the job; each carries its works out one after the other.
    """
    outcomes: dict[int, object] = {}
    crowd = [number for number, work in enumerate(works) if not work.alone]
    if len(crowd) > 1:
        try:
            outcomes |= _run(session, works, _spread(works, crowd, tasks))
        except Exception:  # noqa: BLE001 - one of them took its worker along; which, shows when each goes alone
            outcomes.clear()
    for number in range(len(works)):
        if number not in outcomes:
            try:
                outcomes |= _run(session, works, [[number]])
            except Exception as error:  # noqa: BLE001 - the caller's, as any other outcome
                outcomes[number] = error
    return [outcomes[number] for number in range(len(works))]


def _spread(works: Sequence[Work], numbers: Sequence[int], tasks: int) -> list[list[int]]:
    """Return the numbers of each task: the largest first, each to the task that has least."""
    parts: list[list[int]] = [[] for _ in range(min(tasks, len(numbers)))]
    load = [0] * len(parts)
    for number in sorted(numbers, key=lambda n: -works[n].rows):
        lightest = load.index(min(load))
        parts[lightest].append(number)
        # Opening a table costs something however small the batch is.
        load[lightest] += works[number].rows + 1_000
    return parts


def _run(
    session: SparkSession, works: Sequence[Work], parts: Sequence[Sequence[int]]
) -> dict[int, object]:
    """Carry works out in one task per part."""
    chosen = [[(number, works[number].do) for number in part] for part in parts]

    def carry_out(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column(0).to_pylist():
                for number, do in chosen[part]:
                    yield pa.RecordBatch.from_pydict(
                        {"number": pa.array([number], pa.int32()), "outcome": [attempt(do)]}
                    )

    tasks = session.range(0, len(parts), 1, len(parts))
    rows = tasks.mapInArrow(carry_out, "number INT, outcome BINARY").collect()
    return {row.number: pickle.loads(row.outcome) for row in rows}


def attempt(do: Callable[[], object]) -> bytes:
    """Return, pickled, what a work returns or raises: Spark has no part in it, tries nothing again, fills no log."""
    try:
        return pickle.dumps(do())
    except Exception as error:  # noqa: BLE001 - the driver's business, whatever it is
        try:
            packed = pickle.dumps(error)
            pickle.loads(packed)
        except Exception:  # noqa: BLE001 - not every exception travels
            return pickle.dumps(RuntimeError(f"{type(error).__name__} in a task"))
        return packed
