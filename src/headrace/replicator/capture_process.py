"""``python -m headrace.replicator.capture_process FILE``: reads the source, or a relay of it, into the change log."""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path

from headrace.errors import (
    ConfigError,
    SlotLost,
    SourceError,
    SourceReplaced,
    SourceUnavailable,
)
from headrace.replicator import config_file, runner
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

    def renewed() -> bool:
        return _renewed(config)

    while True:
        try:
            with (
                runner.capture(config, paths, stop, report, renewed) as capture,
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
        except SourceError as error:
            if not renewed():
                raise
            raise SourceUnavailable(
                f"{error.message} Its section source, or a secret in it, has changed since capture was started.",
                next_step="nothing: capture is started again with the new one.",
            ) from error


def _renewed(config: Config) -> bool:
    """Whether our file, with the secrets that it names, says something else of the source than when we began."""
    try:
        return config_file.load(Path(sys.argv[1])).source != config.source
    except ConfigError:
        # What does not read is nothing to begin again with.
        return False


def main() -> int:
    """Run until asked to end; the exit code says whether to start again."""
    begin_lean()
    return run_worker("capture", sys.argv[1:], _capture)


if __name__ == "__main__":
    sys.exit(main())
