"""Where a pipeline stands in a feed: a file in its state folder. And the SCNs of watermarks, which no feed holds.

A feed belongs to somebody else, so marks do not travel through it: the reader puts them behind everything that lies in
the feed at that moment. For that its numbers are spread: between two transactions there is room for 65,535 marks. Which
of them were used is written down before they are, a few at a time, so that none is used again after a restart.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.durable import replace_file
from headrace.errors import SlotLost, SourceError

__all__ = ["MARK_BITS", "FeedPlace", "PlaceFile", "check_number", "feed_scn", "own_scn"]

MARK_BITS = 16
_RESERVED = 64
_LIMIT = 1 << 47


def own_scn(scn: int) -> int:
    """Return the SCN of a transaction of the feed; of 0, what lies before the first.

    Raises:
        SourceError: its number leaves no room for marks.
    """
    if scn:
        check_number(scn)
    return scn << MARK_BITS


def check_number(scn: int) -> None:
    """Refuse a number that no transaction of a feed may have; likewise."""
    if not 0 < scn < _LIMIT:
        raise SourceError(
            f"The feed numbers a transaction {scn}.",
            next_step=f"number them from 1 to {_LIMIT - 1}.",
        )


def feed_scn(scn: int) -> int:
    """Return the number of the last transaction of the feed at or before an SCN."""
    return scn >> MARK_BITS


@dataclass(frozen=True, slots=True)
class FeedPlace:
    """A place.

    Attributes:
        scn: everything up to here is durable with the pipeline.
        marks: no mark above this SCN was ever given.
    """

    scn: int = 0
    marks: int = 0


class PlaceFile:
    """Keeps one pipeline's place; used by one process.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mark = 0
        self._place: FeedPlace | None = None

    def read(self) -> FeedPlace | None:
        """Return the place, None where there is none.

        Raises:
            SlotLost: the file is damaged.
        """
        try:
            value = json.loads(self._path.read_text())
            return FeedPlace(int(value["scn"]), int(value["marks"]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise SlotLost(
                f"The place in {self._path} does not read.",
                next_step="restore the state folder from a backup; else start a new one and copy the tables again.",
            ) from error

    def write(self, place: FeedPlace) -> None:
        """Replace the place; durable when it returns."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, json.dumps(asdict(place)).encode())
        self._place = place

    def forget(self) -> None:
        """Remove it."""
        self._path.unlink(missing_ok=True)

    def begin(self) -> FeedPlace:
        """Return the place to go on from.

        Raises:
            SlotLost: there is none.
        """
        place = self.read()
        if place is None:
            raise SlotLost(
                f"There is no place in {self._path}.",
                next_step="restore the state folder from a backup; else start a new one and copy the tables again.",
            )
        self._place, self._mark = place, place.marks
        return place

    def acknowledge(self, scn: int) -> None:
        """Note that everything up to an SCN is durable."""
        assert self._place is not None
        if scn > self._place.scn:
            self.write(FeedPlace(scn, self._place.marks))

    def next_mark(self, after: int) -> int:
        """Return the SCN of a mark behind a transaction, which no mark had before.

        Args:
            after: SCN of the transaction.

        Raises:
            SourceError: there were too many marks since it.
        """
        assert self._place is not None
        self._mark = max(self._mark, after) + 1
        if self._mark >= after + (1 << MARK_BITS):
            raise SourceError(
                f"More than {(1 << MARK_BITS) - 1} watermarks stand behind one transaction of the feed.",
                next_step="let the feed go on: a transaction without changes is enough.",
            )
        if self._mark > self._place.marks:
            self.write(FeedPlace(self._place.scn, self._mark + _RESERVED))
        return self._mark
