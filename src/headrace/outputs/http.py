"""Changes to a webhook: one call per window, several for a large one.

The body is one JSON object::

    {"source": "shop", "scn": 81, "changes": [change or event, …], "end": true}

``end`` tells the last call of a window. Each change comes at least once; a call that comes twice has the same
``idempotency-key``, ``source:scn:ord`` of its first change, and the same changes: calls are cut by count and never by
time, so this holds as long as windows are not merged. A window of which nothing is wanted makes no call.
"""

from __future__ import annotations

import logging
from typing import Any

from headrace.client import Consumer, Event, Result, Window
from headrace.model.block import SystemEvent
from headrace.outputs.formats import Format
from headrace.outputs.webhook import Webhook, WebhookRefused, WebhookSettings
from headrace.wire.place import Place

__all__ = ["HttpOutput"]

_DEFAULT = Format()
_log = logging.getLogger(__name__)


class HttpOutput(Consumer):
    """Posts changes. When its callback for the end of a window returns, the window was taken.

    An answer that trying again may change fails the callback when retries are used up, and the window comes again from
    the checkpoint. One that it does not change ends the subscription: `refusal` and the log say why.

    Args:
        webhook: settings of the webhook, or one that is made.
        most_changes: in one call.
        form: how changes look. Its ``end`` is not asked.

    Attributes:
        refusal: why the output ended; None while it did not.

    Raises:
        ConfigError: the settings cannot be used.
    """

    in_order = True

    def __init__(
        self,
        webhook: Webhook | WebhookSettings,
        *,
        most_changes: int = 1_000,
        form: Format = _DEFAULT,
    ) -> None:
        self._webhook = Webhook(webhook) if isinstance(webhook, WebhookSettings) else webhook
        self._most_changes = most_changes
        self._form = form
        self._window: Window | None = None
        self._waiting: list[Any] = []
        self._key = ""
        self.refusal: WebhookRefused | None = None

    def on_stop(self) -> None:
        """Close the connection."""
        self._webhook.close()

    def on_start_window(self, window: Window) -> None:
        """Remember it for the format and the key."""
        self._window = window

    def on_data_event(self, event: Event) -> Result | None:
        """Take the change; post when there are enough."""
        assert self._window is not None
        return self._add(event.scn, event.ord, self._form.change(self._window, event))

    def on_system_event(self, event: SystemEvent) -> Result | None:
        """Take the event, likewise."""
        assert self._window is not None
        return self._add(event.scn, event.ord, self._form.system(self._window, event))

    def on_end_window(self, window: Window) -> Result | None:
        """Post what is left."""
        del window
        return self._post(end=True) if self._waiting else None

    def on_checkpoint(self, place: Place) -> Result | None:
        """Refuse a checkpoint inside a window: its changes wait here."""
        del place
        return Result.SKIP_CHECKPOINT if self._waiting else None

    def on_rollback(self, place: Place) -> None:
        """Forget what was not posted."""
        del place
        self._waiting.clear()

    def _add(self, scn: int, order: int, said: Any) -> Result | None:
        if said is None:
            return None
        # Only when more comes: the last call of a window says that it is the last.
        answer = self._post(end=False) if len(self._waiting) >= self._most_changes else None
        if not self._waiting:
            assert self._window is not None
            self._key = f"{self._window.source}:{scn}:{order}"
        self._waiting.append(said)
        return answer

    def _post(self, *, end: bool) -> Result | None:
        window = self._window
        assert window is not None
        said = {
            "source": window.source,
            "scn": window.scn,
            "changes": self._waiting,
            "end": end,
        }
        try:
            self._webhook.post(self._form.serialize(said), self._key)
        except WebhookRefused as error:
            _log.error("%s", error)
            self.refusal = error
            return Result.ERROR_FATAL
        self._waiting.clear()
        return None
