"""``python -m headrace.replicator.apply_process FILE``: folds the change log into the target."""

from __future__ import annotations

import sys
import threading

from headrace.replicator import runner
from headrace.replicator.config import Config
from headrace.replicator.paths import StatePaths
from headrace.replicator.worker import Report, run_worker

__all__ = ["main"]


def _apply(config: Config, paths: StatePaths, stop: threading.Event, report: Report) -> None:
    runner.apply(config, paths, stop, report)


def main() -> int:
    """Run until asked to end; the exit code says whether to start again."""
    return run_worker("apply", sys.argv[1:], _apply)


if __name__ == "__main__":
    sys.exit(main())
