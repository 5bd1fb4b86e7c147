"""Reads of a window that stay where they are until a test lets them go."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.observe import failpoints

__all__ = ["Held", "held"]


class Held:
    """The first read that comes to a place of its window stays there until it is let go."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.there = threading.Event()
        self._gone = threading.Event()

    def wait(self) -> None:
        self.there.set()
        assert self._gone.wait(60), "nobody lets the read go"

    def let_go(self) -> None:
        failpoints.disarm(self.place)
        self._gone.set()


@contextmanager
def held(place: str) -> Iterator[Held]:
    found = Held(place)
    failpoints.arm(place, found.wait)
    try:
        yield found
    finally:
        found.let_go()
