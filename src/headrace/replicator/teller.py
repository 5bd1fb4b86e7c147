"""Tells a webhook what is new, from a thread of its own, until it is taken; whoever has news never waits for it."""

from __future__ import annotations

import json
import logging
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.state.minutes import MinuteStore

if TYPE_CHECKING:
    from headrace.outputs.webhook import Webhook

__all__ = ["Teller"]

_PAUSE_S = 30.0
"""Before another call when one was not taken, with all its own tries."""
_log = logging.getLogger(__name__)

News = TypeVar("News")


class Teller(ABC, Generic[News]):
    """One kind of news and its webhook; of several news, only the newest counts.

    Args:
        name: of the replicator.
        webhook: that is told.
        path: of the database of minutes, where what was told is noted.
    """

    def __init__(self, name: str, webhook: Webhook, path: Path) -> None:
        self._name, self._webhook = name, webhook
        self._store = MinuteStore(path)
        self._wake = threading.Condition()
        self._newest: News | None = None
        self._ends = False
        self._thread = threading.Thread(target=self._work, name="alerts", daemon=True)
        self._thread.start()

    def take(self, news: News | None) -> None:
        """Take what holds now; never waits for the webhook."""
        with self._wake:
            self._newest = news
            self._wake.notify()

    def close(self) -> None:
        """Let a call at work finish, for a moment."""
        with self._wake:
            self._ends = True
            self._wake.notify()
        self._thread.join(2.0)
        self._webhook.close()
        self._store.close()

    @abstractmethod
    def _tell(self, news: News) -> None:
        """Tell what is due, and note it.

        Raises:
            WebhookUnavailable: it was not taken; nothing is noted.
            WebhookRefused: likewise.
            StateError: the note cannot be kept.
        """

    def _post(self, said: dict[str, Any], key: str) -> None:
        """Make one call; errors as of `_tell`.

        Args:
            said: beside the replicator's name.
            key: tells a call that comes twice from another one.
        """
        body = json.dumps({"replicator": self._name, **said}).encode()
        self._webhook.post(body, f"{self._name}:{key}")

    def _work(self) -> None:
        while (news := self._next()) is not None:
            try:
                self._tell(news)
            except Exception as error:  # noqa: BLE001 - whatever it is, the next one is tried
                _log.warning("a webhook was not told: %s", error)
                with self._wake:
                    self._wake.wait_for(lambda: self._ends, _PAUSE_S)

    def _next(self) -> News | None:
        with self._wake:
            self._wake.wait_for(lambda: self._ends or self._newest is not None)
            newest, self._newest = self._newest, None
            return None if self._ends else newest
