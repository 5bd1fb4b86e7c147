"""A member of a group whose word does not get through, while it goes on delivering: what is fenced is fenced for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from headrace.client.errors import GroupUnavailable
from headrace.client.group_state import Claim, GroupState
from headrace.client.group_store import GroupStore
from headrace.wire.place import Place

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["CutGroupStore"]

T = TypeVar("T")


class CutGroupStore:
    """A real store behind a line that can be cut: then nothing is agreed on any more, but places still go through.

    Args:
        store: the real one.

    Attributes:
        cut: set while the line is.
        refused: how often something did not get through.
    """

    def __init__(self, store: GroupStore) -> None:
        self._store = store
        self._line = threading.Lock()
        self.cut = threading.Event()
        self.refused = 0

    def sever(self) -> None:
        """Cut the line once nothing is on its way: what was would be agreed on after the cut, at any later time."""
        with self._line:
            self.cut.set()

    def read(self, group: str) -> GroupState | None:
        """As the real one, unless the line is cut."""
        with self._line:
            self._check()
            return self._store.read(group)

    def create(self, group: str, state: GroupState) -> None:
        """As the real one, unless the line is cut."""
        with self._line:
            self._check()
            self._store.create(group, state)

    def change(self, group: str, act: Callable[[GroupState, int], T]) -> T:
        """As the real one, unless the line is cut."""
        with self._line:
            self._check()
            return self._store.change(group, act)

    def load(self, group: str, claim: Claim) -> Place:
        """As the real one."""
        return self._store.load(group, claim)

    def store(
        self, group: str, claim: Claim, place: Place, connection: Connection | None = None
    ) -> None:
        """As the real one."""
        self._store.store(group, claim, place, connection)

    def _check(self) -> None:
        if self.cut.is_set():
            self.refused += 1
            raise GroupUnavailable("The line is cut.", next_step="none: a test did it.")
