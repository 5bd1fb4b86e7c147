"""Run by `test_pulse`: the apply job on a Spark of its own, which is stopped in the middle of its first batch.

Prints for how long Spark was said to be silent, and how the job ended.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.errors import ApplyInterrupted
from headrace.observe.failpoints import arm
from headrace.spark.job import ApplySettings, run_apply
from headrace.spark.session import SessionSettings, build_session
from headrace.spark.status import ApplyStatus

SILENT_S = 6.0


def tell_end(
    folder: Path,
    silent_s: float,
    take: Callable[[ApplyStatus], None] = lambda _status: None,
    spark: SparkSession | None = None,
) -> None:
    """Run the job, on a Spark of its own where none is given, and print how it ended."""
    settings = ApplySettings(
        pipeline="test",
        changelog=folder / "changelog",
        lake=folder / "lake",
        spark_dir=folder / "spark",
        maintenance=None,
        silent_s=silent_s,
    )
    try:
        run_apply(settings, threading.Event(), take, spark=spark)
    except ApplyInterrupted as error:
        print(f"{error.retry.name}: {error.message}")


def main(folder: Path) -> None:
    """Apply the change log under ``folder``."""
    spark = build_session(SessionSettings(driver_memory="1g", scratch=folder / "spark"))
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    arm("apply.before_commit", lambda: os.kill(gateway.proc.pid, signal.SIGSTOP))
    said: list[ApplyStatus] = []

    def take(status: ApplyStatus) -> None:
        if status.silent_s and status.batch_s and not said:
            said.append(status)
            print("silent in a batch", flush=True)

    tell_end(folder, SILENT_S, take, spark)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
