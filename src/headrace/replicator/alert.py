"""Tells a webhook when the freshness objective is missed, and when it is met again: each once.

In: attainments as they come. Out: signed calls. What was told last is kept with the minutes, so that a restart tells
nothing twice; a call that comes twice after a crash has the same ``idempotency-key``.
"""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from headrace.replicator.objective import Attainment
from headrace.replicator.teller import Teller

__all__ = ["MET", "MISSED", "Alerts", "due"]

MISSED, MET = "missed", "met"

_NOTE = "objective"
_NOTHING: dict[str, Any] = {"told": "", "calling": "", "since_s": 0}
_log = logging.getLogger(__name__)


def due(told: str, attainment: Attainment) -> str | None:
    """Return what is to be told now; None for nothing.

    Args:
        told: what was told last; empty when nothing ever was.
        attainment: of the moment.
    """
    if attainment.attained is None:
        return None
    if attainment.missed:
        return MISSED if told != MISSED else None
    # That it is met is news only behind a miss.
    return MET if told == MISSED else None


class Alerts(Teller[Attainment]):
    """One objective and its webhook."""

    def _tell(self, attainment: Attainment) -> None:
        note = {**_NOTHING, **json.loads(self._store.get(_NOTE) or "{}")}
        state = due(note["told"], attainment)
        if state is None:
            return
        if note["calling"] != state:
            # Kept before the call, so that one that comes twice can be told by its key.
            since_s = int(time.time()) if state == MISSED else note["since_s"]
            note = {**note, "calling": state, "since_s": since_s}
            self._store.set(_NOTE, json.dumps(note))
        said = {"objective": state, "since_s": note["since_s"], **attainment.to_json()}
        self._post(said, f"objective:{state}:{note['since_s']}")
        self._store.set(_NOTE, json.dumps({**note, "told": state, "calling": ""}))
        _log.warning("%s: the freshness objective is %s", self._name, state)
