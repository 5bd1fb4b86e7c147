"""Lineage events on their way: appended to a file, or kept until a collector has taken them.

In: events, from the thread that looks after the run, which never waits. Out: lines of a file; POSTs of a thread of its
own, one after the other in their order, tried again until they are taken. What was not sent when the run ended is sent
by the next one. A collector that stays away costs the oldest events, with a word in the log.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path
from typing import Any

from headrace.durable import replace_file
from headrace.outputs.webhook import Webhook, WebhookSettings
from headrace.replicator.observe_config import LineageConfig

__all__ = ["MOST_KEPT", "Outbox"]

MOST_KEPT = 1_000
"""Events that wait for a collector; beyond it the oldest go."""
_PAUSE_S = 30.0
_END_S = 3.0
_log = logging.getLogger(__name__)


class Outbox:
    """One replicator's events.

    Args:
        config: where they go.
        folder: of those that wait.
        pause_s: before another try when one was not taken.
    """

    def __init__(self, config: LineageConfig, folder: Path, pause_s: float = _PAUSE_S) -> None:
        self._file = config.file
        self._folder = folder
        self._pause_s = pause_s
        self._wake = threading.Condition()
        self._ends = False
        self._number = 0
        self._thread: threading.Thread | None = None
        if config.url is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._number = max((int(path.stem) for path in self._waiting()), default=0)
            self._webhook = _webhook(config)
            self._thread = threading.Thread(target=self._work, name="lineage", daemon=True)
            self._thread.start()

    def put(self, event: dict[str, Any]) -> None:
        """Take an event; durable when this returns.

        Raises:
            OSError: it cannot be kept.
        """
        text = json.dumps(event)
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(f"{text}\n")
                file.flush()
                os.fsync(file.fileno())
        if self._thread is None:
            return
        with self._wake:
            self._number += 1
            replace_file(self._folder / f"{self._number:012d}.json", text.encode())
            waiting = self._waiting()
            for path in waiting[:-MOST_KEPT]:
                _log.warning("lineage: the collector stays away, the oldest event goes unsent")
                path.unlink(missing_ok=True)
            self._wake.notify()

    def close(self) -> None:
        """Let what waits be sent, for a moment."""
        if self._thread is None:
            return
        with self._wake:
            self._ends = True
            self._wake.notify()
        self._thread.join(_END_S)
        self._webhook.close()

    def _waiting(self) -> list[Path]:
        return sorted(path for path in self._folder.glob("*.json") if path.stem.isdecimal())

    def _work(self) -> None:
        while True:
            taken = self._send_all()
            with self._wake:
                if self._ends and not (taken and self._waiting()):
                    return
                if taken:
                    self._wake.wait_for(lambda: self._ends or bool(self._waiting()))
                else:
                    self._wake.wait_for(lambda: self._ends, self._pause_s)

    def _send_all(self) -> bool:
        """Send what waits; false when one was not taken."""
        for path in self._waiting():
            try:
                self._webhook.post(path.read_bytes(), path.stem)
            except FileNotFoundError:
                continue
            except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
                _log.warning("lineage: an event was not taken and waits: %s", error)
                return False
            path.unlink(missing_ok=True)
        return True


def _webhook(config: LineageConfig) -> Webhook:
    assert config.url is not None
    token = config.token.get_secret_value() if config.token else ""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return Webhook(
        WebhookSettings(config.url.get_secret_value(), headers=headers, timeout_s=5.0, retries=0)
    )
