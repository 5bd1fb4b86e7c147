"""Which files of a table maintenance writes anew, from what the log says of them.

Pure. In: sizes, rows and bounds of files. Out: the next piece of work, or none when the table is in order. A piece is
bounded, so that a batch never waits long for it, and each leaves the table nearer to order, so that a table that is
left alone is in order after a while:

- Small files become few: four or more of them, neighbours by their keys, become as few as the target size allows.
- Crowds are dispersed: where more than eight files may hold one key, the smallest of them become files that lie side
  by side.
- Files of which a part is deleted lose those rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.lake.data_writer import FILE_ROWS

__all__ = ["FileFacts", "Piece", "Sizes", "next_piece"]

_FEW = 4
"""Small files that are worth a piece: merging pairs would write each row too often."""
_CROWD = 8
"""Files that may hold one key before some of them are merged."""
_MOST_FILES = 2
"""Full files that one piece may write; what is in memory at once."""
_WORTH = 1 / 16
"""Part of a small file that must be deleted before a file is written again for it."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a table's files should look like.

    Attributes:
        target_bytes: size of a full file.
        small_bytes: files below it are merged; at most half of a full one.
        deleted: share of a file's rows that may be deleted, above 0.
    """

    target_bytes: int = 64 * 2**20
    small_bytes: int = 16 * 2**20
    deleted: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.small_bytes <= self.target_bytes / 2:
            raise ValueError("a small file is at most half as large as a full one")


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One file.

    Attributes:
        size: bytes.
        rows: those included that are deleted.
        dead: rows that are deleted.
        bounds: least and greatest value of the first column it is sorted by, numbers or texts; None when the log does
            not give them exactly.
    """

    size: int
    rows: int
    dead: int
    bounds: tuple[Any, Any] | None

    @property
    def living(self) -> int:
        """Rows that count."""
        return self.rows - self.dead

    @property
    def living_bytes(self) -> float:
        """What they take, about."""
        return self.size * self.living / max(self.rows, 1)


@dataclass(frozen=True, slots=True)
class Piece:
    """Files that are written anew in one commit.

    Attributes:
        files: their places in the list that was planned from, in the order of their rows.
        count: files that come of them.
        reason: ``small``, ``crowded`` or ``deleted``.
    """

    files: tuple[int, ...]
    count: int
    reason: str


def next_piece(
    files: Sequence[FileFacts], sizes: Sizes, parts: Sequence[Sequence[int]] | None = None
) -> Piece | None:
    """Return the most useful piece of work on a table, None when it is in order.

    Args:
        files: of the table.
        sizes: what they should look like.
        parts: places of the files of each partition, which stay apart; by default all files are of one.
    """
    for find in (_small, _crowded, _holed):
        found = []
        for places in [range(len(files))] if parts is None else parts:
            if piece := find([files[place] for place in places], sizes):
                found.append(replace(piece, files=tuple(places[n] for n in piece.files)))
        if found:
            return max(found, key=lambda piece: len(piece.files))
    return None


def _small(files: Sequence[FileFacts], sizes: Sizes) -> Piece | None:
    """Return the longest run of small files that fits into a piece."""
    small = [
        place
        for place, file in enumerate(files)
        if file.living_bytes < sizes.small_bytes and file.living < FILE_ROWS // 2
    ]
    runs: list[list[int]] = [[]]
    for place in _in_order(files, small):
        if not _fits(files, [*runs[-1], place], sizes):
            runs.append([])
        runs[-1].append(place)
    best = max(runs, key=len)
    return _piece(files, best, sizes, "small") if len(best) >= _FEW else None


def _crowded(files: Sequence[FileFacts], sizes: Sizes) -> Piece | None:
    """Return the smallest files of the most crowded place.

    Bounds are taken without their ends: neighbours may share a value there, and no merging changes that.
    """
    ranges = {place: file.bounds for place, file in enumerate(files) if file.bounds is not None}
    # At one value, files end before others begin.
    steps = [(low, 1) for low, _ in ranges.values()] + [(high, -1) for _, high in ranges.values()]
    depth, deepest, where = 0, 0, None
    for value, step in sorted(steps):
        depth += step
        if depth > deepest:
            deepest, where = depth, value
    if where is None or deepest <= _CROWD:
        return None
    crowd = [p for p, (low, high) in ranges.items() if low <= where < high]
    chosen: list[int] = []
    for place in sorted(crowd, key=lambda place: files[place].living_bytes):
        if not _fits(files, [*chosen, place], sizes):
            break
        chosen.append(place)
    return _piece(files, _in_order(files, chosen), sizes, "crowded") if len(chosen) > 1 else None


def _holed(files: Sequence[FileFacts], sizes: Sizes) -> Piece | None:
    """Return the file with the greatest part of its rows deleted."""
    holed = [
        place
        for place, file in enumerate(files)
        if file.dead
        and file.dead >= sizes.deleted * file.rows
        and file.size - file.living_bytes >= sizes.small_bytes * _WORTH
        and file.living <= _MOST_FILES * FILE_ROWS
    ]
    if not holed:
        return None
    worst = max(holed, key=lambda place: files[place].dead / files[place].rows)
    return Piece((worst,), _count(files, [worst], sizes), "deleted")


def _in_order(files: Sequence[FileFacts], places: Iterable[int]) -> list[int]:
    """Return files in the order of their keys, those whose keys nobody knows behind."""
    chosen = list(places)
    known = [place for place in chosen if files[place].bounds is not None]
    return [
        *sorted(known, key=lambda place: files[place].bounds or ()),
        *(place for place in chosen if files[place].bounds is None),
    ]


def _fits(files: Sequence[FileFacts], places: Sequence[int], sizes: Sizes) -> bool:
    """Whether files are no more than one piece."""
    size = sum(files[place].living_bytes for place in places)
    rows = sum(files[place].living for place in places)
    return size <= _MOST_FILES * sizes.target_bytes and rows <= _MOST_FILES * FILE_ROWS


def _piece(files: Sequence[FileFacts], places: Sequence[int], sizes: Sizes, why: str) -> Piece:
    # Never more files than before: that is how it comes to an end.
    return Piece(tuple(places), min(_count(files, places, sizes), len(places)), why)


def _count(files: Sequence[FileFacts], places: Iterable[int], sizes: Sizes) -> int:
    """Return how many files the living rows of some fill."""
    chosen = [files[place] for place in places]
    size = sum(file.living_bytes for file in chosen)
    rows = sum(file.living for file in chosen)
    return max(math.ceil(size / sizes.target_bytes), math.ceil(rows / FILE_ROWS))
