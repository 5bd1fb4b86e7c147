"""Slots that this capture has had servers keep: one is read, and those of earlier configurations are let go of.

In: the source, the state that knows which slots there were. Out: at the source none but the one that is read, as far
as they are ours and within reach; what is logged tells of the others. A slot that nobody reads keeps the server's log
for ever.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict

from headrace.sources.base import HeldSlot, HoldsSlot, Source
from headrace.state.store import StateStore

__all__ = ["let_go_of_others", "note_slot", "noted_slots"]

_LOG = logging.getLogger(__name__)
_SLOTS = "held_slots"
_FOREIGN = "it is at another server; drop it there"


def noted_slots(state: StateStore) -> list[HeldSlot]:
    """Return the slots that are, or may be, kept at servers."""
    return [HeldSlot(**one) for one in json.loads(state.get(_SLOTS) or "[]")]


def note_slot(source: Source, state: StateStore, incarnation: str) -> None:
    """Note the slot of a source ahead of its use: the next start may have another configuration.

    Args:
        source: prepared.
        state: of the capture.
        incarnation: that the source is in.
    """
    if not isinstance(source, HoldsSlot):
        return
    noted, held = noted_slots(state), source.held(incarnation)
    if not any(_same(held, one) for one in noted):
        _keep(state, [*noted, held])


def let_go_of_others(source: Source, state: StateStore, incarnation: str) -> None:
    """Remove our slots that are not read any more, and tell of those that are not ours to remove.

    Args:
        source: opened, so that nothing is needed of another slot; or to be deleted.
        state: of the capture.
        incarnation: that the source is in.

    Raises:
        SourceUnavailable: one cannot be removed now; it stays noted, and so do those behind it.
    """
    reading = source if isinstance(source, HoldsSlot) else None
    now = [reading.held(incarnation)] if reading else []
    noted = noted_slots(state)
    others = [one for one in noted if not any(_same(held, one) for held in now)]
    for place, one in enumerate(others, 1):
        if stays := reading.let_go(one, incarnation) if reading else _FOREIGN:
            _LOG.warning(
                "slot %s is not read any more, and keeps log for as long as it is there: %s",
                one.name,
                stays,
            )
        _keep(state, [*now, *others[place:]])
    if noted != now:
        _keep(state, now)


def _same(one: HeldSlot, other: HeldSlot) -> bool:
    return (one.server, one.name) == (other.server, other.name)


def _keep(state: StateStore, slots: Sequence[HeldSlot]) -> None:
    text = json.dumps([asdict(one) for one in slots])
    state.write([lambda writer: writer.set(_SLOTS, text)])
