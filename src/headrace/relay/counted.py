"""How many changes a capture has brought, each counted once, and only when it is durable."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

__all__ = ["Counted"]

_HELD = 256
"""Blocks that may wait to be counted."""


class Counted:
    """Changes of one process; what a lost connection takes back counts when it comes again.

    Attributes:
        changes: change rows and system events of whole transactions that are durable.
        commit_us: commit time of the newest of them, microseconds since 1970 UTC; 0 before the first.
    """

    def __init__(self) -> None:
        self.changes = self.commit_us = 0
        self._appended: deque[npt.NDArray[np.void]] = deque()

    def append(self, index: npt.NDArray[np.void], complete_scn: int) -> None:
        """Take the transaction index of a block that was appended and is not durable yet; at times count what is."""
        if len(index):
            self._appended.append(index)
        # Readers wait for the sync that follows, and nobody for the count.
        if len(self._appended) > _HELD:
            self.durable(complete_scn)

    def durable(self, complete_scn: int) -> None:
        """Count what lies at or below the last whole transaction that is durable."""
        while self._appended and self._appended[0]["scn"][-1] <= complete_scn:
            self._add(self._appended.popleft())

    def rewind(self, complete_scn: int) -> None:
        """Count what the log kept, and forget the rest: the source sends it again."""
        for index in self._appended:
            self._add(index[index["scn"] <= complete_scn])
        self._appended.clear()

    def _add(self, index: npt.NDArray[np.void]) -> None:
        if len(index):
            self.changes += int(index["changes"].sum())
            self.commit_us = int(index["commit_us"][-1])
