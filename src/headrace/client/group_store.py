"""What a group needs of the place that its members share: a state that one changes at a time, and fenced places.

The seam for other coordination services: whatever can change a few kilobytes as a whole and refuse a write under an
older generation will do. `headrace.client.group_sql` does it with a database.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from headrace.client.errors import StaleGeneration
from headrace.client.group_state import Claim, GroupState
from headrace.wire.place import Place

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["GroupStore", "PartitionCheckpoints"]

T = TypeVar("T")


class GroupStore(Protocol):
    """Keeps groups by name. Used from any number of threads and processes."""

    def read(self, group: str) -> GroupState | None:
        """Return the state of a group, None when there is none of this name.

        Raises:
            GroupUnavailable: it cannot be read now.
        """

    def create(self, group: str, state: GroupState) -> None:
        """Keep a new group, unless there is one of this name.

        Raises:
            GroupUnavailable: it cannot be kept now.
        """

    def change(self, group: str, act: Callable[[GroupState, int], T]) -> T:
        """Change the state of a group as a whole, and return what ``act`` returned.

        Args:
            group: its name.
            act: called with the state, which it changes in place, and the store's clock in microseconds, while nobody
                else changes this group. It may be called again when the change did not come through.

        Raises:
            GroupUnavailable: it cannot be changed now; nothing was.
        """

    def load(self, group: str, claim: Claim) -> Place:
        """Return the place of a partition.

        Raises:
            StaleGeneration: the claim is over.
            CheckpointUnusable: it does not read.
        """

    def store(
        self, group: str, claim: Claim, place: Place, connection: Connection | None = None
    ) -> None:
        """Remember the place of a partition; it outlives a crash once this returns.

        Args:
            group: its name.
            claim: under which the partition is held.
            place: to remember.
            connection: the consumer's own, inside its transaction, where the store is a database.

        Raises:
            StaleGeneration: the claim is over; nothing was stored.
            CheckpointUnusable: it cannot be stored.
        """


class PartitionCheckpoints:
    """The place of one partition, as long as its claim holds.

    Args:
        store: of the group.
        group: its name.
        claim: under which the partition is held.
        on_stale: called when it is not any more.
    """

    def __init__(
        self, store: GroupStore, group: str, claim: Claim, on_stale: Callable[[], None]
    ) -> None:
        self._store = store
        self._group = group
        self._claim = claim
        self._on_stale = on_stale

    def load(self) -> Place:
        """Return what was stored last, by whomever held the partition.

        Raises:
            StaleGeneration: the claim is over.
            CheckpointUnusable: it does not read.
        """
        try:
            return self._store.load(self._group, self._claim)
        except StaleGeneration:
            self._on_stale()
            raise

    def store(self, place: Place, *, connection: Connection | None = None) -> None:
        """Remember a place.

        Args:
            place: to remember.
            connection: the consumer's own, inside its transaction: data and place become durable together, and only
                while the claim holds.

        Raises:
            StaleGeneration: the claim is over; nothing was stored.
            CheckpointUnusable: it cannot be stored.
        """
        try:
            self._store.store(self._group, self._claim, place, connection)
        except StaleGeneration:
            self._on_stale()
            raise
