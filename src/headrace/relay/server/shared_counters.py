"""The counts of all workers of a relay, which any of them can tell.

Each worker leaves its own in a file, about once a second; the folder is the relay's, and goes with it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["Counts", "SharedCounters"]

Counts = Mapping[tuple[str, str, str], int]
"""By name, source and kind."""

_SUFFIX = ".json"


class SharedCounters:
    """What one worker leaves there, and what it finds.

    Args:
        folder: of the relay's workers; None where there is one alone.
        worker: its number.
    """

    def __init__(self, folder: Path | None, worker: int) -> None:
        self._folder, self._worker = folder, worker
        self._left: dict[tuple[str, str, str], int] | None = None

    def leave(self, counts: Counts) -> None:
        """Let the other workers know; does nothing when they know already."""
        if self._folder is None or self._left == counts:
            return
        draft = self._folder / f"{self._worker}.tmp"
        # Where no room is left for it, the others tell what they knew.
        with contextlib.suppress(OSError):
            draft.write_text(json.dumps([[*key, value] for key, value in counts.items()]))
            os.replace(draft, _file(self._folder, self._worker))
            self._left = dict(counts)

    def others(self) -> dict[int, Counts]:
        """Return what the other workers have left, by their numbers."""
        if self._folder is None:
            return {}
        found: dict[int, Counts] = {}
        for path in self._folder.glob(f"*{_SUFFIX}"):
            # A worker may end meanwhile.
            with contextlib.suppress(FileNotFoundError):
                values = json.loads(path.read_bytes())
                found[int(path.stem)] = {tuple(key): value for *key, value in values}
        found.pop(self._worker, None)
        return found


def _file(folder: Path, worker: int) -> Path:
    return folder / f"{worker}{_SUFFIX}"
