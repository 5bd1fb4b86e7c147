"""What a thread that tries something again and again says about it: once, and again when it is something else."""

from __future__ import annotations

import logging

from headrace.errors import HeadraceError

__all__ = ["Complaints"]

_log = logging.getLogger(__name__)


class Complaints:
    """Writes an error to the log when it differs from the one before."""

    def __init__(self) -> None:
        self._last = ""

    def hear(self, error: HeadraceError) -> None:
        """Tell of an error, unless that was told already."""
        if error.message != self._last:
            _log.warning("%s", error.message)
        self._last = error.message

    def forget(self) -> None:
        """Note that it went well."""
        if self._last:
            _log.info("it goes on")
        self._last = ""
