"""Consumers that deliver elsewhere: lines of JSON, a webhook, nowhere; tables of a database by `headrace.outputs.sql`.

An output of your own is a few lines. This one keeps the newest note of each order in memory::

    from headrace.client import Consumer

    class Notes(Consumer):
        def on_start(self):
            self.notes = {}

        def on_data_event(self, event):
            if event.op == "-D":
                self.notes.pop(event.key, None)
            elif "note" in event.row:
                self.notes[event.key] = event.row["note"]
"""

from __future__ import annotations

from headrace.outputs.formats import Format
from headrace.outputs.http import HttpOutput
from headrace.outputs.ndjson import NdjsonOutput
from headrace.outputs.noop import Counts, NoopOutput
from headrace.outputs.webhook import Webhook, WebhookRefused, WebhookSettings, WebhookUnavailable

__all__ = [
    "Counts",
    "Format",
    "HttpOutput",
    "NdjsonOutput",
    "NoopOutput",
    "Webhook",
    "WebhookRefused",
    "WebhookSettings",
    "WebhookUnavailable",
]
