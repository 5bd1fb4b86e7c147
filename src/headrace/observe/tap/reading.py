"""The reading side: lines from a file that is still written, and what is missing among them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any, BinaryIO

from headrace.observe.tap.recorder import older

__all__ = ["Line", "News", "Order", "follow", "parse"]

_LOOK_S = 0.05
_ENVELOPE = ("v", "seq", "ts", "run_id", "source_id", "kind")

Line = dict[str, Any]
"""One event as it was read."""


def parse(text: str) -> Line | None:
    """Return the event of a line; None for what is none, such as half a line that a dead process left."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if isinstance(value, dict) and all(name in value for name in _ENVELOPE):
        return value
    return None


def follow(
    path: Path,
    *,
    stop: Callable[[], bool] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[str]:
    """Yield the lines of the older file and of the newer one, and then those that come.

    A file that is moved aside while it is read is read to its end.

    Args:
        path: of the newer file; it need not exist yet.
        stop: asked at the end of what is there; ends at once when it is None.
        sleep: waits between two looks, in seconds.
    """
    if older(path).exists():
        with older(path).open("rb") as whole_file:
            yield from _lines(whole_file)
    file: BinaryIO | None = None
    rest = b""
    try:
        while True:
            if file is None and path.exists():
                file, rest = path.open("rb"), b""
            if file is not None:
                rest += file.read()
                *whole, rest = rest.split(b"\n")
                yield from (line.decode(errors="replace") for line in whole)
                if not whole and _moved(file, path):
                    file.close()
                    file = None
                    continue
                if whole:
                    continue
            if stop is None or stop():
                return
            sleep(_LOOK_S)
    finally:
        if file is not None:
            file.close()


def _lines(file: BinaryIO) -> Iterator[str]:
    for line in file:
        yield line.decode(errors="replace").rstrip("\n")


def _moved(file: BinaryIO, path: Path) -> bool:
    try:
        return not os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        # Moved aside this very moment; the new one comes.
        return False


class News(Enum):
    """What a line is to a reader that has read others before."""

    NEXT = auto()
    """The next one, or out of band."""
    REPEATED = auto()
    """It was read before."""
    AFTER_GAP = auto()
    """Lines before it are missing; `Order.missed` counts them."""
    NEW_RUN = auto()
    """Another run: what was shown so far is over."""


@dataclass(slots=True)
class Order:
    """Watches the numbers.

    Attributes:
        run_id: of the run that is read.
        seq: last number read.
        missed: events of this run that never came.
    """

    run_id: str = ""
    seq: int = -1
    missed: int = 0

    def take(self, line: Line) -> News:
        """Say what a line is."""
        number = line["seq"]
        if line["run_id"] != self.run_id:
            self.run_id, self.missed = line["run_id"], 0
            self.seq = -1 if number is None else number
            return News.NEW_RUN
        if number is None:
            return News.NEXT
        if number <= self.seq:
            return News.REPEATED
        gap = number - self.seq - 1
        self.seq, self.missed = number, self.missed + gap
        return News.AFTER_GAP if gap else News.NEXT
