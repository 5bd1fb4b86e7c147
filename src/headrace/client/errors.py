"""What can go wrong between the stream and a consumer."""

from __future__ import annotations

from headrace.errors import HeadraceError, LeaseLost, ProtocolError, Retry, StateError
from headrace.wire.place import Place

__all__ = [
    "BudgetExceeded",
    "CallbackFailed",
    "CheckpointUnusable",
    "ClockWentBack",
    "ConsumerRefused",
    "DamagedBlock",
    "FatalResult",
    "GroupUnavailable",
    "StaleGeneration",
    "Suspended",
    "Unconvertible",
    "WindowUnfinished",
]


class CallbackFailed(HeadraceError):
    """A callback raised or said ERROR; the window is delivered again from the last checkpoint."""

    def __init__(self, callback: str, place: Place, what: str) -> None:
        super().__init__(
            f"{callback} of the consumer failed at {place}: {what}.",
            next_step="look at the consumer's own log; repair it and resume, or skip the window.",
        )
        self.callback = callback
        self.place = place


class ConsumerRefused(CallbackFailed):
    """A callback said ERROR."""


class BudgetExceeded(CallbackFailed):
    """A callback took longer than its time budget."""


class FatalResult(CallbackFailed):
    """A callback said ERROR_FATAL: nothing is delivered again."""


class Suspended(HeadraceError):
    """Retries are used up: the subscription waits for a person."""


class ClockWentBack(ProtocolError):
    """A relay sent a transaction at or below one that it had sent before."""

    def __init__(self, scn: int, after: int) -> None:
        super().__init__(
            f"The stream went back: SCN {scn} came after everything up to {after}.",
            next_step="compare the relay's change log with the source: it may belong to another life of it.",
        )
        self.scn = scn
        self.after = after


class DamagedBlock(ProtocolError):
    """A block failed its checksum on the way; nothing of it was delivered."""


class CheckpointUnusable(StateError):
    """A stored checkpoint does not read, or cannot be stored."""


class GroupUnavailable(StateError):
    """The members of a group cannot agree: what they share cannot be read or changed now."""

    retry = Retry.TIMED


class StaleGeneration(LeaseLost):
    """A member of a group stores the place of a partition that is not its own any more; nothing was stored."""

    def __init__(self, group: str, number: int, generation: int) -> None:
        super().__init__(
            f"Partition {number} of group {group} is not held under generation {generation} any more.",
            next_step="none: its present owner goes on from the last place; see to the lease if it comes often.",
        )
        self.number = number
        self.generation = generation


class Unconvertible(HeadraceError):
    """A column of the source cannot be what the consumer asked for."""

    def __init__(self, table: str, column: str, what: str) -> None:
        super().__init__(
            f"{table}.{column}: {what}.",
            next_step="ask for a wider type, make the column nullable or give it a default, or leave it out.",
        )
        self.table = table
        self.column = column


class WindowUnfinished(HeadraceError):
    """A window was given up before its end: somebody wanted an end or another place, and its rest did not come."""

    def __init__(self, scn: int) -> None:
        super().__init__(
            f"The rest of window {scn} did not come before the subscription was stopped or rewound.",
            next_step="keep nothing of this window: all of it comes again.",
        )
        self.scn = scn
