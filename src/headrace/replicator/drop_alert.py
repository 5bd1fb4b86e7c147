"""Tells a webhook of each table whose operations fell, and when they are back: each once.

In: what has fallen, as it comes. Out: signed calls. What was told is kept with the minutes, so that a restart tells
nothing twice; a call that comes twice after a crash has the same ``idempotency-key``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from headrace.replicator.drops import Drop
from headrace.replicator.teller import Teller

__all__ = ["BACK", "DROPPED", "DropAlerts"]

DROPPED, BACK = "dropped", "back"

_NOTE = "drops told"
_log = logging.getLogger(__name__)


class DropAlerts(Teller[Mapping[str, Drop]]):
    """The drops of one replicator and their webhook."""

    def _tell(self, news: Mapping[str, Drop]) -> None:
        told: dict[str, int] = json.loads(self._store.get(_NOTE) or "{}")
        for table in sorted(told.keys() - news.keys()):
            self._one(BACK, {"table": table, "since_s": told.pop(table)}, told)
        for table, drop in news.items():
            if table not in told:
                told[table] = drop.since_s
                self._one(DROPPED, drop.to_json(), told)

    def _one(self, what: str, said: dict[str, object], told: dict[str, int]) -> None:
        key = f"activity:{said['table']}:{what}:{said['since_s']}"
        self._post({"activity": what, **said}, key)
        self._store.set(_NOTE, json.dumps(told))
        _log.warning("%s: activity of %s: %s", self._name, said["table"], what)
