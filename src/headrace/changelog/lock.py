"""The lock that keeps a second writer out as long as the file system keeps its word.

Where it does not, the generation in the tail does (`headrace.changelog.tail`).
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from headrace.errors import LeaseLost

__all__ = ["take_lock"]


def take_lock(folder: Path) -> int:
    """Return a descriptor that holds the lock until it is closed; never waits.

    Raises:
        LeaseLost: another process holds it.
    """
    lock = os.open(folder / "writer.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if not isinstance(error, BlockingIOError):
            raise
        raise LeaseLost(
            f"Another process writes the change log {folder}.",
            next_step="stop that process first, or leave this replicator to it.",
        ) from error
    return lock
