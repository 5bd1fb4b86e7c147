"""``python -m headrace.replicator.relay_process FILE``: serves the change log to consumers."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from headrace.relay.server.workers import run_relay
from headrace.replicator.config import Config
from headrace.replicator.lean import begin_lean
from headrace.replicator.paths import StatePaths
from headrace.replicator.relaying import relay_settings
from headrace.replicator.worker import Report, run_worker

__all__ = ["main"]


def _relay(config: Config, paths: StatePaths, stop: threading.Event, report: Report) -> None:  # noqa: ARG001
    settings = relay_settings({Path(sys.argv[1]): config})
    run_relay(settings, stop, lambda url, pids: report({"url": url, "workers": pids}))


def main() -> int:
    """Run until asked to end; the exit code says whether to start again."""
    begin_lean()
    return run_worker("relay", sys.argv[1:], _relay)


if __name__ == "__main__":
    sys.exit(main())
