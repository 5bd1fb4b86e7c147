"""What a consumer was told: written line by line by its process, read again by the test."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from headrace.client import Batch, Event

__all__ = ["Lines", "Told", "fold", "line_of", "lines_of"]

Row = dict[str, Any]


class Lines:
    """Appends lines that the kernel holds when a call returns: they outlive a kill."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        # What a kill left unfinished ends here.
        os.write(self._file, b"\n")

    def write(self, *values: Row) -> None:
        """Append values."""
        os.write(self._file, "".join(json.dumps(value) + "\n" for value in values).encode())


def line_of(event: Event) -> Row:
    """Return a change as it is written."""
    said: Row = {"scn": event.scn, "ord": event.ord, "op": event.op, "row": dict(event.row)}
    return said if event.before is None else said | {"before": dict(event.before)}


def lines_of(batch: Batch) -> Iterator[Row]:
    """Return the changes of a batch as they are written; two images of one row are one change."""
    before: Row | None = None
    for row in batch.rows.to_pylist():
        scn, order, op, _ = (row.pop(name) for name in ("_scn", "_ord", "_op", "_missing"))
        if op == "-U":
            before = row
            continue
        said: Row = {"scn": scn, "ord": order, "op": op, "row": row}
        yield said if before is None else said | {"before": before}
        before = None


def fold(events: Iterable[Row], rows: dict[int, int]) -> None:
    """Bring rows to what events make of them, in the order in which they come."""
    for event in events:
        if (before := event.get("before")) is not None:
            rows.pop(before["id"], None)
        if event["op"] == "-D":
            rows.pop(event["row"]["id"], None)
        else:
            rows[event["row"]["id"]] = event["row"]["v"]


class Told:
    """Reads the lines of one consumer as they come.

    Attributes:
        rows: that the deliveries amount to, in the order in which they came.
        places: of all changes.
        deliveries: of changes, those that came again too.
        starts: how often it began, in a new process or behind a rollback.
        wrong: callbacks out of order, and changes that lie behind a later one without a start in between.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._last = (-1, -1)
        self.rows: dict[int, int] = {}
        self.places: set[tuple[int, int]] = set()
        self.deliveries = self.starts = 0
        self.wrong: list[str] = []

    @property
    def duplicates(self) -> int:
        """Deliveries of changes that had been delivered before."""
        return self.deliveries - len(self.places)

    def read(self) -> Told:
        """Take what has come since the last call."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read += len(whole)
            for line in whole.splitlines():
                try:
                    said = json.loads(line)
                except ValueError:
                    # Empty, or a kill left it unfinished: its window comes again.
                    continue
                self._take(said)
        return self

    def _take(self, said: Row) -> None:
        if "grammar" in said:
            self.wrong.append(said["grammar"])
        elif "begin" in said:
            self.starts += 1
            self._last = (-1, -1)
        elif "op" in said:
            place = (said["scn"], said["ord"])
            if place <= self._last:
                self.wrong.append(f"{place} came behind {self._last}")
            self._last = place
            self.places.add(place)
            self.deliveries += 1
            fold([said], self.rows)
