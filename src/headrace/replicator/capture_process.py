"""``python -m headrace.replicator.capture_process FILE``: reads the source, or a relay of it, into the change log."""

from __future__ import annotations

import logging
import sys
import threading

from headrace.errors import SlotLost, SourceReplaced
from headrace.replicator import runner
from headrace.replicator.config import Config
from headrace.replicator.lean import begin_lean, leave_to_stay
from headrace.replicator.paths import StatePaths
from headrace.replicator.relay_config import RelaySourceConfig
from headrace.replicator.worker import Report, run_worker

__all__ = ["main"]

_LOG = logging.getLogger(__name__)


def _capture(config: Config, paths: StatePaths, stop: threading.Event, report: Report) -> None:
    if isinstance(config.source, RelaySourceConfig):
        runner.follow(config, config.source, stop, report)
        return
    while True:
        try:
            with (
                runner.capture(config, paths, stop, report) as capture,
                runner.log_watched(config, report),
                runner.repaired(config, paths),
            ):
                leave_to_stay()
                capture.run(stop)
                return
        except (SlotLost, SourceReplaced) as error:
            if not runner.recovers(config, error):
                raise
            _LOG.warning("recovering, as source.on_lost_slot says: %s", error)


def main() -> int:
    """Run until asked to end; the exit code says whether to start again."""
    begin_lean()
    return run_worker("capture", sys.argv[1:], _capture)


if __name__ == "__main__":
    sys.exit(main())
