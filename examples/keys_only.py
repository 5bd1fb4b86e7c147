"""An output in a form of one's own: one line per change, with nothing but table and key."""

from __future__ import annotations

from typing import Any

from headrace.client import Event, Subscription, Window
from headrace.model.block import SystemEvent
from headrace.outputs import Format, NdjsonOutput


class KeysOnly(Format):
    def change(self, window: Window, event: Event) -> Any:
        return {"table": str(event.table), "key": self.plain(event.key), "op": event.op}

    def system(self, window: Window, event: SystemEvent) -> None:
        return None

    def end(self, window: Window) -> None:
        return None


def keys_into(file: str, relay: str, upto: int | None = None) -> Subscription:
    output = NdjsonOutput(file, rotate_bytes=2**28, form=KeysOnly())
    return Subscription(relay, "shop", output, f"{file}.place", upto=upto)
