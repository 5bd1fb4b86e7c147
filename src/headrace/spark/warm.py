"""Python workers that live through quiet minutes.

Spark ends the Python workers of an executor when none of them had work for a minute, and the next batch pays for new
ones: a second, of which nearly all is loading the libraries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

__all__ = ["KEEP_S", "Warm", "touch_workers"]

KEEP_S = 30.0
"""Pause after which workers are touched: half of Spark's minute, which it looks at every ten seconds."""

_ROWS = 1_000
_TASK_S = 0.02
"""How long a task holds its worker, so that the next one does not take the same."""


def touch_workers(session: SparkSession) -> None:
    """Give every worker that batches may have a task; it then lives for another minute."""
    # As many tasks as a batch has, by Spark's own rule for ranges.
    session.range(_ROWS).mapInArrow(_held, "id BIGINT").collect()


class Warm:
    """Keeps the workers of a session while there is nothing to do.

    Args:
        session: whose workers.
        clock: monotonic seconds.
        touch: gives them work.
    """

    def __init__(
        self,
        session: SparkSession,
        clock: Callable[[], float] = time.monotonic,
        touch: Callable[[SparkSession], None] = touch_workers,
    ) -> None:
        self._session = session
        self._clock = clock
        self._touch = touch
        self._used_at = clock()

    def used(self) -> None:
        """Say that a batch has just used them."""
        self._used_at = self._clock()

    def keep(self) -> None:
        """Touch them if nobody has used them for a while."""
        if self._clock() - self._used_at >= KEEP_S:
            self._touch(self._session)
            self.used()


def _held(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    time.sleep(_TASK_S)
