"""What can be wrong with a table's files on disk."""

from __future__ import annotations

from headrace.errors import StateError, TargetError

__all__ = ["CorruptFrontier", "CorruptTable", "VersionNotFound"]


class CorruptTable(TargetError):
    """A file of the table's log, or one the log names, is missing or does not read."""


class VersionNotFound(TargetError):
    """The table has no such version, or no longer the log that describes it."""


class CorruptFrontier(StateError):
    """A frontier manifest does not read, or a file lies there that is none."""
