"""Is the log still there that our state points into?"""

from __future__ import annotations

from pathlib import Path

from headrace.changelog.reader import ChangeLogReader
from headrace.errors import ChangeLogLost

__all__ = ["require"]


def require(folder: Path, scn: int) -> None:
    """Return when everything above ``scn`` can be read from the log, now or when it comes.

    Called at start, before a writer opens the folder, by everyone whose durable state holds a position in the log.
    An SCN of 0 points nowhere and is always fine.

    Raises:
        ChangeLogLost: the log was deleted, is older than the state, or has dropped what the state still needs.
    """
    if not scn:
        return
    tail = ChangeLogReader(folder).tail()
    if not tail.oldest_scn <= scn <= tail.covered_scn:
        raise ChangeLogLost(
            f"The change log {folder} holds SCN {tail.oldest_scn} to {tail.covered_scn}, "
            f"but the state points to SCN {scn}: the log was deleted or replaced.",
            next_step="restore the folder from a backup, or dump all tables again (RESYNC NEEDED).",
        )
