"""A capture with a relay over its change log, and a consumer that keeps a copy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.changelog import ChangeLogSettings
from headrace.client import Consumer, Event
from headrace.model.block import SystemEvent, SystemKind
from headrace.relay.server.settings import ServedSource
from headrace.sources.base import Source
from headrace.testing.relay import served
from headrace.wire.place import Place
from tests.faults.faulty import AtWork, at_work
from tests.waiting import until

__all__ = ["Copy", "relayed"]


@contextmanager
def relayed(
    source: Source, folder: Path, settings: ChangeLogSettings | None = None
) -> Iterator[tuple[AtWork, str]]:
    """Capture a source and serve it as ``shop``; give the capture, its first copy done, and the relay's URL."""
    with at_work(source, folder, settings) as running:
        until(running.dumped, "the first copy")
        log = folder / "changelog"
        shop = ServedSource("shop", log, log / "schemas", folder / "state.db")
        with served((shop,), heartbeat_s=0.1) as url:
            yield running, url


class Copy(Consumer):
    """Keeps the rows of tables with the key ``id``, as the page about consuming says.

    Attributes:
        rows: by table, then by key.
        versions: how many events said something of a key, by table and key.
        windows: SCNs, in order.
    """

    def __init__(self) -> None:
        self.rows: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
        self.versions: dict[tuple[str, tuple[Any, ...]], int] = {}
        self.windows: list[int] = []

    def on_data_event(self, event: Event) -> None:
        held = self.rows.setdefault(str(event.table), {})
        said = str(event.table), event.key
        self.versions[said] = self.versions.get(said, 0) + 1
        if event.before is not None:
            held.pop((event.before["id"],), None)
        if event.op == "-D":
            held.pop(event.key, None)
        else:
            held[event.key] = {**held.get(event.key, {}), **event.row}

    def on_system_event(self, event: SystemEvent) -> None:
        if event.kind is SystemKind.TRUNCATE:
            self.rows.pop(str(event.table), None)

    def on_end_window(self, window: Any) -> None:
        self.windows.append(window.scn)

    def on_rollback(self, place: Place) -> None:
        assert place == Place(0), "nothing fails here: whoever goes back begins anew"
        self.rows.clear()

    def content(self, table: str) -> list[tuple[Any, ...]]:
        """Return the rows of a table, sorted."""
        return sorted(tuple(row.values()) for row in self.rows.get(table, {}).values())
