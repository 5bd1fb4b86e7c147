"""The reading side: lines from a file that is still written, and what is missing among them."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any, BinaryIO

from headrace.observe.tap.recorder import older

__all__ = ["Line", "LineReader", "News", "Order", "follow", "has_form", "parse"]

_LOOK_S = 0.05
_READ_BYTES = 1 << 20
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


def has_form(line: Line) -> bool:
    """Whether what every event has is of its type; a file of somebody else may have the names."""
    number = line["seq"]
    texts = ("ts", "run_id", "source_id", "kind")
    return (number is None or type(number) is int) and all(
        isinstance(line[name], str) for name in texts
    )


class LineReader:
    """Reads the lines of a tap's files, oldest first, and never waits; close it.

    A file that is moved aside while it is read is read to its end, and so is the one that came between, unless it is
    gone by then: the numbers of lines tell.

    Args:
        path: of the newer file; it need not exist yet.
        tail_bytes: begin with the lines in so many bytes at the end; None begins with the oldest line.
    """

    def __init__(self, path: Path, tail_bytes: int | None = None) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""
        self._open_first(tail_bytes)

    def _open_first(self, tail_bytes: int | None) -> None:
        newer, old = _size(self._path), older(self._path)
        if tail_bytes is None or tail_bytes > newer:
            with contextlib.suppress(FileNotFoundError):
                self._file = old.open("rb")
            skipped = 0 if tail_bytes is None else _size(old) - (tail_bytes - newer)
        else:
            self._file = self._path.open("rb")
            skipped = newer - tail_bytes
        if self._file is not None and skipped > 0:
            # One byte earlier, so that a line that begins just here is whole.
            self._file.seek(skipped - 1)
            self._file.readline()

    def read(self) -> list[str]:
        """Return lines that are there, at most about a megabyte of them; none at the end."""
        while True:
            if self._file is None:
                try:
                    self._file, self._rest = self._path.open("rb"), b""
                except FileNotFoundError:
                    return []
            data = self._file.read(_READ_BYTES)
            *whole, self._rest = (self._rest + data).split(b"\n")
            if whole:
                return [line.decode(errors="replace") for line in whole]
            if not data and not self._next():
                return []

    def _next(self) -> bool:
        """Go on behind a file that was moved aside, and say whether it was."""
        assert self._file is not None
        held = os.fstat(self._file.fileno())
        if _is(self._path, held) or not self._path.exists():
            return False
        # Moved twice: the one that came between.
        followed = self._path if _is(older(self._path), held) else older(self._path)
        self._file.close()
        self._file, self._rest = None, b""
        with contextlib.suppress(FileNotFoundError):
            self._file = followed.open("rb")
        return True

    @property
    def behind_bytes(self) -> int:
        """Bytes that are there and were not read."""
        if self._file is None:
            return _size(self._path)
        held = os.fstat(self._file.fileno())
        later = 0 if _is(self._path, held) else _size(self._path)
        return held.st_size - self._file.tell() + later

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _is(path: Path, held: os.stat_result) -> bool:
    try:
        return os.path.samestat(held, path.stat())
    except FileNotFoundError:
        return False


def follow(
    path: Path,
    *,
    stop: Callable[[], bool] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[str]:
    """Yield the lines of the older file and of the newer one, and then those that come.

    Args:
        path: of the newer file; it need not exist yet.
        stop: asked at the end of what is there; ends at once when it is None.
        sleep: waits between two looks, in seconds.
    """
    with contextlib.closing(LineReader(path)) as reader:
        while True:
            lines = reader.read()
            yield from lines
            if not lines:
                if stop is None or stop():
                    return
                sleep(_LOOK_S)


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
