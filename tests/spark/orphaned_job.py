"""Run by `test_job`: the apply job on a Spark of its own, which is killed behind the first batch.

Prints how the job ended.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from headrace.errors import ApplyInterrupted
from headrace.spark.job import ApplySettings, run_apply
from headrace.spark.session import SessionSettings, build_session
from headrace.spark.status import ApplyStatus

LIMIT_S = 15.0
"""Half of the time after which quiet workers are touched, which would bring the death to light too."""


def main(folder: Path) -> None:
    """Apply the change log under ``folder``, and go on when its end is reached."""
    spark = build_session(SessionSettings(driver_memory="1g", scratch=folder / "spark"))
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    jvm = gateway.proc.pid

    stop = threading.Event()
    timer = threading.Timer(LIMIT_S, stop.set)
    timer.daemon = True

    def kill(status: ApplyStatus) -> None:
        if status.frontier_scn:
            os.kill(jvm, signal.SIGKILL)
            timer.start()

    settings = ApplySettings(
        pipeline="test",
        changelog=folder / "changelog",
        lake=folder / "lake",
        spark_dir=folder / "spark",
        maintenance=None,
    )
    try:
        run_apply(settings, stop, kill, spark=spark)
    except ApplyInterrupted as error:
        print(f"{error.retry.name}: {error.message}")
    else:
        print("stopped")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
