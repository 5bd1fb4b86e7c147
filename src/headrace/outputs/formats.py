"""How changes look when they leave: as plain objects, and these as bytes.

Whoever wants another form subclasses `Format`, or gives one of its methods away::

    class KeysOnly(Format):
        def change(self, window, event):
            return {"table": str(event.table), "key": self.plain(event.key)}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

from headrace.client import Event, Window
from headrace.model.block import SystemEvent
from headrace.wire.plain import plain

__all__ = ["Format"]


class Format:
    """The objects of ``docs/relay_protocol.md``, section "The answer in lines", as compact JSON.

    A method that returns None leaves its line out.
    """

    def change(self, window: Window, event: Event) -> Any:
        """Return the object for a change; ``before`` is there when the row ahead of an update came too."""
        del window
        said: dict[str, Any] = {
            "scn": event.scn,
            "ord": event.ord,
            "op": event.op,
            "table": str(event.table),
            "row": self.plain(event.row),
        }
        if event.before is not None:
            said["before"] = self.plain(event.before)
        if event.missing:
            said["missing"] = sorted(event.missing)
        return said

    def system(self, window: Window, event: SystemEvent) -> Any:
        """Return the object for a system event."""
        del window
        return {
            "scn": event.scn,
            "event": event.kind.value,
            "ord": event.ord,
            "table": str(event.table),
            "payload": event.payload,
        }

    def end(self, window: Window) -> Any:
        """Return the object for the end of a window."""
        return {
            "scn": window.scn,
            "end": True,
            "commit_us": window.commit_us,
            "origin": window.origin,
        }

    def serialize(self, value: Any) -> bytes:
        """Return an object as bytes without a line break."""
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    def plain(self, value: Any) -> Any:
        """Return a value as JSON holds it; what JSON has no exact word for is text.

        Decimals and integers beyond 2^53 are decimal text, bytes are base64, dates and times are ISO 8601, NaN and the
        infinities are text by name.

        Raises:
            TypeError: it is no value of a row.
        """
        if isinstance(value, Mapping):
            return {name: self.plain(cell) for name, cell in value.items()}
        if isinstance(value, tuple | list):
            return [self.plain(cell) for cell in value]
        if value is None or isinstance(value, bool | str | int | float | Decimal | bytes):
            return plain(value)
        if isinstance(value, date):
            return value.isoformat()
        raise TypeError(f"no plain form of {type(value).__name__}")
