"""``python -m headrace.replicator.capture_process FILE``: reads the source into the change log."""

from __future__ import annotations

import sys
import threading

from headrace.replicator import runner
from headrace.replicator.config import Config
from headrace.replicator.paths import StatePaths
from headrace.replicator.worker import Report, run_worker

__all__ = ["main"]


def _capture(config: Config, paths: StatePaths, stop: threading.Event, report: Report) -> None:
    with runner.capture(config, paths, stop, report) as capture:
        capture.run(stop)


def main() -> int:
    """Run until asked to end; the exit code says whether to start again."""
    return run_worker("capture", sys.argv[1:], _capture)


if __name__ == "__main__":
    sys.exit(main())
