"""What the reading of changes costs the database, and what is said where changes are lost or slow."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.errors import SlotLost
from headrace.model.schema import TableId

__all__ = ["RESYNC", "Cost", "lost_place", "lost_triggers"]

RESYNC = (
    "RESYNC NEEDED: run `headrace resync FILE`, which compares the tables and repairs what differs"
)
"""What to do about changes that are lost."""


@dataclass(slots=True)
class Cost:
    """What the reading of changes has cost the database since it was last noted.

    Attributes:
        queries: how many.
        rows: rows that came.
        seconds: how long they took.
        slow: how many of them took longer than ``source.slow_query_s``.
    """

    queries: int = 0
    rows: int = 0
    seconds: float = 0.0
    slow: int = 0

    def clear(self) -> None:
        """Begin anew: what was counted is noted."""
        self.queries = self.rows = self.slow = 0
        self.seconds = 0.0

    def add(self, rows: int, begun_s: float, limit_s: float) -> float | None:
        """Count one query; return how long it took where that is slow.

        Args:
            rows: that it gave.
            begun_s: monotonic seconds.
            limit_s: what takes longer is slow.
        """
        took_s = time.monotonic() - begun_s
        self.queries += 1
        self.rows += rows
        self.seconds += took_s
        if took_s <= limit_s:
            return None
        self.slow += 1
        return took_s


def lost_triggers(tables: Iterable[TableId]) -> SlotLost:
    """Return the error for triggers that went while their tables were captured."""
    names = ", ".join(map(str, sorted(tables)))
    return SlotLost(
        f"Somebody removed or disabled the triggers of {names}: what was written meanwhile is in no log.",
        next_step=f"find out who did; {RESYNC}.",
    )


def lost_place(name: str, why: str) -> SlotLost:
    """Return the error for a pipeline that has no place any more."""
    return SlotLost(
        f"{name} has no place in headrace.txlog_readers: {why}.",
        next_step=f"{RESYNC}; source.abandon_hours says how long a pipeline is waited for.",
    )
