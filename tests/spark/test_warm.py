"""The first batch after quiet minutes finds the workers of the one before."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.spark.warm import KEEP_S, Warm, touch_workers

pytestmark = pytest.mark.spark

SPARKS_MINUTE_S = 60.0


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def worker_ids(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        ids = pa.repeat(os.getpid(), batch.num_rows).cast(pa.int64())
        yield pa.record_batch([ids], ["pid"])


def workers(spark: SparkSession) -> set[int]:
    rows = spark.range(1_000).mapInArrow(worker_ids, "pid BIGINT").distinct().collect()
    return {row.pid for row in rows}


def test_touched_workers_are_those_that_batches_have(spark: SparkSession) -> None:
    touch_workers(spark)
    before = workers(spark)
    touch_workers(spark)
    assert workers(spark) & before


def test_quiet_workers_are_touched_before_spark_ends_them(spark: SparkSession) -> None:
    clock, touched = Clock(), list[float]()
    warm = Warm(spark, clock, lambda _: touched.append(clock.now))
    for second in range(300):
        clock.now = float(second)
        warm.keep()
    gaps = [b - a for a, b in zip([0.0, *touched], [*touched, 300.0], strict=True)]
    # Spark looks every ten seconds.
    assert max(gaps) < SPARKS_MINUTE_S - 10
    assert len(touched) <= 300 / KEEP_S


def test_workers_at_work_are_left_alone(spark: SparkSession) -> None:
    clock, touched = Clock(), list[float]()
    warm = Warm(spark, clock, lambda _: touched.append(clock.now))
    for second in range(300):
        clock.now = float(second)
        warm.used()
        warm.keep()
    assert touched == []
