"""The log of a trigger source: tick after tick of the clock, struck by us where nobody else did."""

from __future__ import annotations

import contextlib
import threading
import time

from headrace.errors import HeadraceError
from headrace.sources.base import LogItem
from headrace.sources.trigger.assembler import Assembler
from headrace.sources.trigger.cost import Cost
from headrace.sources.trigger.events import Begin, ChangeRow
from headrace.sources.trigger.ports import Changes, Walk
from headrace.sources.trigger.queues import Delivered
from headrace.sources.trigger.settings import TriggerSettings

__all__ = ["TriggerLogReader"]

_SHORTEST_S = 0.002
_HAND_OVER_S = 0.02
"""For how long ticks are gathered into one hand-over where a source never rests: each tick that is read lets the next
be struck, so that there is always one more."""
_ALIVE_S = 30.0
"""How often a place is noted that does not move."""
_PURGE_S = 10.0
"""How often something is looked for that can be purged."""


class TriggerLogReader:
    """Reads one pipeline's changes.

    Args:
        changes: the change tables; becomes ours.
        settings: of the source.
        assembler: collects what comes.
        scn: everything up to here was acknowledged.
        wake: set when somebody here has just written what we wait for.
        delivered: rows of queues that are to be removed.
    """

    def __init__(
        self,
        changes: Changes,
        settings: TriggerSettings,
        assembler: Assembler,
        scn: int,
        wake: threading.Event,
        delivered: Delivered,
    ) -> None:
        self._changes = changes
        self._settings = settings
        self._assembler = assembler
        self._wake = wake
        self._delivered = delivered
        self._walk: Walk | None = None
        self._cost = Cost()
        self._acknowledged = self._noted = scn
        self._note_at = 0.0
        self._purge_at = time.monotonic() + _PURGE_S
        self._look_at = 0.0
        self._pause_s = _SHORTEST_S

    def poll(self, timeout_s: float) -> LogItem | None:
        """Return what has come; see `headrace.sources.base.LogReader.poll`.

        Raises:
            SourceUnavailable: the connection is gone; open again.
            SlotLost: what lies behind our place is gone.
            ProtocolError: somebody else wrote to the change tables.
        """
        deadline = time.monotonic() + timeout_s
        with self._changes.refusals():
            while True:
                self._look()
                self._upkeep()
                if self._assembler.has_output:
                    self._look_at, self._pause_s = 0.0, _SHORTEST_S
                    item = self._assembler.take(more=self._walk is not None)
                    self._delivered.take(item.block)
                    return item
                now = time.monotonic()
                if now >= deadline:
                    return None
                self._wake.wait(max(0.0, min(deadline, self._look_at) - now))

    def _look(self) -> None:
        """Read what there is, unless it was just looked for in vain and nobody has called since."""
        if time.monotonic() < self._look_at and not self._wake.is_set():
            return
        self._wake.clear()
        self._gather()
        self._look_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, self._settings.poll_s)

    def acknowledge(self, position: str) -> None:
        """Note that everything up to ``position`` is durable here; written down now and then."""
        self._acknowledged = int(position)

    def keep_alive(self) -> None:
        """Show the others that we are there, and keep no snapshot open meanwhile."""
        with self._changes.refusals():
            if self._walk is not None and not self._assembler.open:
                self._walk.close()
                self._walk = None
            self._upkeep()

    def close(self) -> None:
        """Release the connections; our place stays."""
        if self._changes.usable and self._acknowledged > self._noted:
            with contextlib.suppress(HeadraceError):
                self._note()
        self._changes.close()

    # -- reading ----------------------------------------------------------------------------------

    def _gather(self) -> None:
        """Read on until a hand-over is due or there is nothing more."""
        assembler = self._assembler
        due = time.monotonic() + _HAND_OVER_S
        while not assembler.full:
            if self._walk is None:
                if assembler.has_output and time.monotonic() >= due:
                    return
                if not self._next_tick():
                    return
            assert self._walk is not None
            event = self._walk.next()
            if event is None:
                assembler.covered(self._walk.last_scn)
                self._walk = None
            elif isinstance(event, ChangeRow):
                assembler.add(event)
            elif isinstance(event, Begin):
                assembler.begin(event)
            else:
                assembler.end()

    def _next_tick(self) -> bool:
        """Open the tick behind what was handed over; return whether there is one."""
        self._walk = self._changes.walk(self._assembler.ended, self._cost)
        return self._walk is not None

    # -- our place --------------------------------------------------------------------------------

    def _upkeep(self) -> None:
        now = time.monotonic()
        moved = self._acknowledged > self._noted
        if now >= self._note_at + (0 if moved else _ALIVE_S):
            self._note()
            self._note_at = now + self._settings.acknowledge_s
        if now >= self._purge_at:
            more = self._changes.purge()
            self._purge_at = time.monotonic() + (self._settings.poll_s if more else _PURGE_S)

    def _note(self) -> None:
        scn = self._acknowledged
        self._delivered.delivered(scn)
        self._changes.note(scn, self._cost)
        self._noted = scn
        self._cost.clear()
