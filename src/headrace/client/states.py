"""What a subscription is doing, for people and for programs that watch it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headrace.wire.place import Place

__all__ = ["State", "Status"]


class State(Enum):
    """Where a subscription stands in its life."""

    INIT = "init"
    """Made; nothing was asked yet."""
    REGISTERED = "registered"
    """A relay knows the source, and the place to begin with is known."""
    STARTED = "started"
    """It delivers."""
    PAUSED = "paused"
    """Somebody paused it."""
    RESUMED = "resumed"
    """It delivers again after a pause or a suspension."""
    SUSPENDED_ON_ERROR = "suspended on error"
    """It waits for a person: resume it, skip the window, or rewind it."""
    SHUTDOWN = "shutdown"
    """It has ended."""


@dataclass(frozen=True, slots=True)
class Status:
    """One look at a subscription.

    Attributes:
        state: what it does.
        place: behind everything that was delivered; None before that is known.
        stored: the last checkpoint; None before there is one.
        error: why it is suspended or ended, or what failed last; None when nothing did.
        windows: delivered to their end.
        rows: delivered.
        rollbacks: after failures.
        connections: answers of relays that began.
        held_bytes: received and not yet taken for delivery.
        peak_bytes: the most of them there ever were.
        last_commit_us: commit time of the newest window that was delivered, microseconds since 1970 UTC; 0 before
            one was.
        failed_scn: of the window that failed and is in the way; None when none is.
    """

    state: State
    place: Place | None = None
    stored: Place | None = None
    error: Exception | None = None
    windows: int = 0
    rows: int = 0
    rollbacks: int = 0
    connections: int = 0
    held_bytes: int = 0
    peak_bytes: int = 0
    last_commit_us: int = 0
    failed_scn: int | None = None
