"""What may be dropped from the log: a pure decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.changelog.config import ChangeLogSettings

__all__ = ["Sealed", "droppable"]


@dataclass(frozen=True, slots=True)
class Sealed:
    """A segment that will not grow.

    Attributes:
        length: its bytes.
        last_scn: greatest SCN in it and before it.
        age_s: since its last block was written.
    """

    length: int
    last_scn: int
    age_s: float


def droppable(
    sealed: Sequence[Sealed],
    used_bytes: int,
    applied_scn: int,
    settings: ChangeLogSettings,
    room_bytes: int = 0,
) -> int:
    """Return how many of the oldest segments go.

    Args:
        sealed: oldest first, all of them durable and published.
        used_bytes: of the whole log, the growing segment included.
        applied_scn: everything up to here may go: every registered job has applied it.
        settings: sizes and ages to keep.
        room_bytes: what is about to be written.

    What a job has not applied stays, whatever the sizes say. For the rest the budget is stronger than what is
    retained for late readers.
    """
    count = 0
    for segment in sealed:
        if segment.last_scn > applied_scn:
            break
        rest = used_bytes - segment.length
        needed = used_bytes + room_bytes > settings.budget_bytes
        kept_long_enough = rest >= settings.retain_bytes and segment.age_s >= settings.retain_s
        if not (needed or kept_long_enough):
            break
        used_bytes = rest
        count += 1
    return count
