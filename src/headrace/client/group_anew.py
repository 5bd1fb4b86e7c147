"""Where a group begins: what a start means for all of it, and how partitions that were lost begin anew.

A partition whose place no relay holds any more goes on ahead of a dump. One that was asked for since serves every other
that is lost, in whichever member, as long as the relays hold all of it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from headrace.client.errors import GroupUnavailable
from headrace.client.group_state import GroupState
from headrace.client.group_store import GroupStore
from headrace.client.relays import Relays
from headrace.client.start import Start, resolve_once
from headrace.errors import ScnNotFound
from headrace.wire.place import Place

__all__ = ["Anew"]

_log = logging.getLogger(__name__)


class Anew:
    """Asks relays for one member of a group; from any of its threads.

    Args:
        store: of the group.
        group: its name.
        source: name of the source.
        opened: makes relays to ask.
        pause: waits for some seconds; returns False to give up.
        pause_s: before the store is asked again.
    """

    def __init__(
        self,
        store: GroupStore,
        group: str,
        source: str,
        opened: Callable[[], Relays],
        pause: Callable[[float], bool],
        pause_s: float,
    ) -> None:
        self._store = store
        self._group = group
        self._source = source
        self._opened = opened
        self._pause = pause
        self._pause_s = pause_s
        self._one_at_a_time = threading.Lock()

    def place_of(self, start: Start) -> Place:
        """Return the place that ``start`` is now.

        Raises:
            ConfigError: ``start`` is nothing of this kind.
            HeadraceError: no relay can tell.
        """
        return resolve_once(self._opened(), self._source, start, self._pause)

    def found(self, lost: ScnNotFound) -> Place:
        """Return a place ahead of a dump that comes behind it, and which relays hold.

        Raises:
            GroupUnavailable: the store does not answer, and the end is wanted.
            HeadraceError: no relay can tell, or the dump is refused.
        """
        while True:
            try:
                with self._one_at_a_time:
                    return Place(self._dumped(lost))
            except GroupUnavailable as error:
                _log.warning("%s", error)
                if not self._pause(self._pause_s):
                    raise

    def _dumped(self, lost: ScnNotFound) -> int:
        state = self._store.read(self._group)
        dumped = None if state is None else state.dumped
        if dumped is not None and lost.oldest <= dumped <= lost.newest and dumped != lost.scn:
            return dumped
        behind = self.place_of("newest").scn
        self._ask()

        def remember(state: GroupState, _: int) -> None:
            state.dumped = behind

        # Only now: whoever finds it goes on there without asking, and the dump is surely wanted.
        self._store.change(self._group, remember)
        return behind

    def _ask(self) -> None:
        relays = self._opened()
        try:
            relay = relays.open(relays.urls[0])
            try:
                relay.dump(self._source)
            finally:
                relay.close()
        finally:
            relays.close()
