"""Tells a webhook when the freshness objective is missed, and when it is met again: each once.

In: attainments as they come. Out: signed calls, from a thread of its own, tried again until they are taken. What was
told last is kept with the minutes, so that a restart tells nothing twice; a call that comes twice after a crash has the
same ``idempotency-key``.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.replicator.objective import Attainment
from headrace.state.minutes import MinuteStore

if TYPE_CHECKING:
    from headrace.outputs.webhook import Webhook

__all__ = ["MET", "MISSED", "Alerts", "due"]

MISSED, MET = "missed", "met"

_NOTE = "objective"
_NOTHING: dict[str, Any] = {"told": "", "calling": "", "since_s": 0}
_PAUSE_S = 30.0
"""Before another call when one was not taken, with all its own tries."""
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


class Alerts:
    """One objective and its webhook.

    Args:
        name: of the replicator.
        webhook: that is told.
        path: of the database of minutes.
    """

    def __init__(self, name: str, webhook: Webhook, path: Path) -> None:
        self._name, self._webhook = name, webhook
        self._store = MinuteStore(path)
        self._wake = threading.Condition()
        self._newest: Attainment | None = None
        self._ends = False
        self._thread = threading.Thread(target=self._work, name="alerts", daemon=True)
        self._thread.start()

    def take(self, attainment: Attainment | None) -> None:
        """Take what holds now; never waits for the webhook."""
        with self._wake:
            self._newest = attainment
            self._wake.notify()

    def close(self) -> None:
        """Let a call at work finish, for a moment."""
        with self._wake:
            self._ends = True
            self._wake.notify()
        self._thread.join(2.0)
        self._webhook.close()
        self._store.close()

    def _work(self) -> None:
        while (attainment := self._next()) is not None:
            try:
                self._tell(attainment)
            except Exception as error:  # noqa: BLE001 - whatever it is, the next one is tried
                _log.warning("the objective's webhook was not told: %s", error)
                with self._wake:
                    self._wake.wait_for(lambda: self._ends, _PAUSE_S)

    def _next(self) -> Attainment | None:
        with self._wake:
            self._wake.wait_for(lambda: self._ends or self._newest is not None)
            newest, self._newest = self._newest, None
            return None if self._ends else newest

    def _tell(self, attainment: Attainment) -> None:
        """Tell what is due, and note it.

        Raises:
            WebhookUnavailable: it was not taken; nothing is noted.
            WebhookRefused: likewise.
            StateError: the note cannot be kept.
        """
        note = {**_NOTHING, **json.loads(self._store.get(_NOTE) or "{}")}
        state = due(note["told"], attainment)
        if state is None:
            return
        if note["calling"] != state:
            # Kept before the call, so that one that comes twice can be told by its key.
            since_s = int(time.time()) if state == MISSED else note["since_s"]
            note = {**note, "calling": state, "since_s": since_s}
            self._store.set(_NOTE, json.dumps(note))
        said = {"replicator": self._name, "objective": state, "since_s": note["since_s"]}
        key = f"{self._name}:objective:{state}:{note['since_s']}"
        self._webhook.post(json.dumps({**said, **attainment.to_json()}).encode(), key)
        self._store.set(_NOTE, json.dumps({**note, "told": state, "calling": ""}))
        _log.warning("%s: the freshness objective is %s", self._name, state)
