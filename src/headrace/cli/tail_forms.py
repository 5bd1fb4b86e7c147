"""How `headrace tail` writes what comes: lines of JSON, lines for people, what is known of each change, or nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from rich.text import Text

from headrace.cli.output import console
from headrace.client import Event, Window
from headrace.model.block import SystemEvent
from headrace.outputs import Format

__all__ = ["FORMS", "Form"]

_STYLES = {"+I": "green", "+R": "cyan", "+U": "yellow", "=U": "yellow", "-D": "red"}
_LONGEST = 60
"""Characters of one value that people are shown."""
_PLAIN = Format()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Form(Protocol):
    """Writes to the standard output."""

    def change(self, window: Window, event: Event) -> None:
        """Write a change."""

    def system(self, window: Window, event: SystemEvent) -> None:
        """Write a system event."""

    def end(self, window: Window) -> None:
        """Write the end of a window."""


class JsonForm:
    """The lines of ``docs/relay_protocol.md``; an update has the old row in ``before`` where it came."""

    def change(self, window: Window, event: Event) -> None:
        """Write a change."""
        self._write(_PLAIN.change(window, event))

    def system(self, window: Window, event: SystemEvent) -> None:
        """Write a system event."""
        self._write(_PLAIN.system(window, event))

    def end(self, window: Window) -> None:
        """Write the end of a window."""
        self._write(_PLAIN.end(window))

    def _write(self, said: Any) -> None:
        sys.stdout.write(_PLAIN.serialize(said).decode() + "\n")


class TableForm:
    """One line a change, for people: what it did to which row; of an update what changed, where the old row came."""

    def change(self, window: Window, event: Event) -> None:
        """Write a change."""
        key = ",".join(map(_shown, event.key))
        self._write(window, event.scn, event.op, f"{event.table} {key}", _changed(event))

    def system(self, window: Window, event: SystemEvent) -> None:
        """Write a system event."""
        payload = _shown(event.payload) if event.payload else ""
        self._write(window, event.scn, "**", f"{event.table} {event.kind.value}", payload)

    def end(self, window: Window) -> None:
        """Write the end of a window."""
        self._write(window, window.scn, "--", f"end of {window.source}'s window", window.origin)

    def _write(self, window: Window, scn: int, op: str, what: str, rest: str) -> None:
        line = Text.assemble(
            (f"{_time(window)} {scn} ", "dim"),
            (op, _STYLES.get(op, "magenta")),
            " ",
            (what, "bold"),
            f"  {rest}" if rest else "",
        )
        # Written as the other forms do: Rich by itself ends the program when nobody reads any more.
        with console.capture() as shown:
            console.print(line, soft_wrap=True)
        sys.stdout.write(shown.get())


class InfoForm:
    """What is known of each change but its row: scn, ord, operation, table, time, origin and key, with tabs between."""

    def change(self, window: Window, event: Event) -> None:
        """Write a change."""
        key = json.dumps(_PLAIN.plain(event.key), ensure_ascii=False)
        self._write(window, event.scn, event.ord, event.op, event.table, key)

    def system(self, window: Window, event: SystemEvent) -> None:
        """Write a system event."""
        self._write(window, event.scn, event.ord, event.kind.value, event.table, "")

    def end(self, window: Window) -> None:
        """Write the end of a window."""
        self._write(window, window.scn, "", "end", "", "")

    def _write(
        self, window: Window, scn: int, at: object, op: str, table: object, key: str
    ) -> None:
        cells = (scn, at, op, table, _time(window), window.origin, key)
        sys.stdout.write("\t".join(map(str, cells)) + "\n")


class NoForm:
    """Nothing: what came is only counted."""

    def change(self, window: Window, event: Event) -> None:
        """Write nothing."""

    def system(self, window: Window, event: SystemEvent) -> None:
        """Write nothing."""

    def end(self, window: Window) -> None:
        """Write nothing."""


FORMS: Mapping[str, Callable[[], Form]] = {
    "table": TableForm,
    "json": JsonForm,
    "info": InfoForm,
    "none": NoForm,
}
"""By the names that people say."""


def _time(window: Window) -> str:
    moment = _EPOCH + timedelta(microseconds=window.commit_us)
    return moment.isoformat(" ", "milliseconds").removesuffix("+00:00")


def _changed(event: Event) -> str:
    """Return the cells worth showing."""
    before = event.before
    if event.op == "-D":
        return ""
    if before is None:
        said = [f"{name}={_shown(cell)}" for name, cell in event.row.items()]
    else:
        said = [
            f"{name}: {_shown(before[name]) if name in before else '?'} → {_shown(cell)}"
            for name, cell in event.row.items()
            if name not in before or before[name] != cell
        ]
    if event.missing:
        said.append(f"(not sent: {', '.join(sorted(event.missing))})")
    return "  ".join(said) or "(nothing changed)"


def _shown(value: Any) -> str:
    """Return a value on one line; whatever would steer a terminal is written out."""
    text = json.dumps(_PLAIN.plain(value), ensure_ascii=False)
    text = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
