"""The change log on disk, with a power cut: what was not synced is gone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from headrace.changelog import ChangeLogSettings
from headrace.relay.log import Log
from headrace.replicator.capture_log import CaptureLog

__all__ = ["open_log"]


def open_log(folder: Path) -> tuple[Log, Callable[[], None]]:
    """Return the log in a folder, and a function that closes it and cuts every segment to what was synced."""
    log = CaptureLog(folder / "changelog", ChangeLogSettings())

    def lose() -> None:
        segment, length = log.durable
        log.close()
        if segment is not None:
            os.truncate(segment, length)

    return log, lose
