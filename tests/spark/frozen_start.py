"""Run by `test_pulse`: the apply job on a Spark of its own, which stands still before it is there.

Prints how the job ended.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pyspark import SparkContext

from headrace.spark.session import SessionSettings, build_session
from tests.spark.frozen_job import tell_end

SILENT_S = 3.0


def main(folder: Path, when: str) -> None:
    """Start the job; by then there is ``no JVM yet``, or ``a JVM without a session`` that stands still."""
    if when != "no JVM yet":
        build_session(SessionSettings(driver_memory="1g", scratch=folder / "spark")).stop()
        gateway = SparkContext._gateway
        assert gateway is not None
        os.kill(gateway.proc.pid, signal.SIGSTOP)
    tell_end(folder, SILENT_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
