"""Row images to the places of their cells.

An image is a mask of nulls, one bit per column that is present, and then the values of those that are not null, one
behind the other. So where a row begins is known only when the one before has been walked through. The walk is the one
loop over rows; everything behind it is done column by column.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.sources.mysql.reading import broken
from headrace.sources.mysql.settings import ZeroDates
from headrace.sources.mysql.types import ColumnType
from headrace.sources.mysql.values import Cells, column_of

__all__ = ["Layout", "Run", "scns_and_ords", "walk"]

# Masks of nulls whose steps are remembered.
_KEPT = 4096


class Run(Protocol):
    """Images that follow one another in one transaction.

    Attributes:
        scn: of the transaction.
        ord: of the first image.
        count: images.
    """

    scn: int
    ord: int
    count: int


class Layout:
    """Images in which the same columns are present, as the walk leaves them.

    Args:
        types: of the columns that are present.

    Attributes:
        data: the images, one behind the other, with those of the other layout where there are two.
        bounds: per image its first value's place, then the place behind each value whose width differs.
        nulls: the masks, one behind the other.
        count: images.
    """

    def __init__(self, types: Sequence[ColumnType]) -> None:
        self.types = tuple(types)
        self.mask_bytes = (len(types) + 7) // 8
        self.varying = [place for place, type_ in enumerate(types) if type_.width is None]
        self.clear()
        self._steps: dict[bytes, tuple[tuple[tuple[int, int], ...], int]] = {}

    def clear(self) -> None:
        """Forget all images."""
        self.data = bytearray()
        self.bounds = array("q")
        self.nulls = bytearray()
        self.count = 0
        self._cells: list[Cells] = []

    def steps(self, mask: bytes) -> tuple[tuple[tuple[int, int], ...], int]:
        """Return how to walk an image with these nulls.

        Returns:
            for each varying column the bytes before its length and the bytes of that, which are 0 of a null; and the
            bytes behind the last one.
        """
        known = self._steps.get(mask)
        if known is not None:
            return known
        found: list[tuple[int, int]] = []
        skip = 0
        for place, type_ in enumerate(self.types):
            null = mask[place >> 3] >> (place & 7) & 1
            if type_.width is None:
                found.append((skip, 0 if null else type_.prefix))
                skip = 0
            elif not null:
                skip += type_.width
        if len(self._steps) >= _KEPT:
            self._steps.clear()
        self._steps[mask] = tuple(found), skip
        return self._steps[mask]

    def column(self, place: int, zero_dates: ZeroDates) -> pa.Array:
        """Return one of the columns.

        Raises:
            ValueError: a value has no exact place in its type.
        """
        if not self._cells:
            self._cells = self._found()
        data = np.frombuffer(self.data, np.uint8)
        return column_of(self.types[place], data, self._cells[place], zero_dates)

    def _found(self) -> list[Cells]:
        """Return where the values lie, by column."""
        count, present = self.count, len(self.types)
        bounds = np.frombuffer(self.bounds, np.int64).reshape(count, 1 + len(self.varying))
        masks = np.frombuffer(self.nulls, np.uint8).reshape(count, self.mask_bytes)
        valid = np.unpackbits(masks, axis=1, bitorder="little")[:, :present] == 0
        found = []
        at = bounds[:, 0]
        seen = 0
        for place, type_ in enumerate(self.types):
            there = valid[:, place]
            if type_.width is None:
                seen += 1
                end = bounds[:, seen]
                found.append(Cells(at + there * type_.prefix, end, there))
                at = end
            else:
                end = at + there * type_.width
                found.append(Cells(at, end, there))
                at = end
        return found


def walk(data: bytes, at: int, end: int, first: Layout, second: Layout) -> int:
    """Walk through images, those of two layouts in turn, and note where their values lie.

    Args:
        data: holds the images.
        at: where the first one begins.
        end: behind the last one.
        first: of the first image and every other one; may be the same as ``second``.
        second: of the others.

    Returns:
        the number of images.

    Raises:
        ProtocolError: an image does not end where it should.
    """
    if not first.mask_bytes and not second.mask_bytes and at < end:
        raise broken("images without columns have bytes")
    bases = [len(layout.data) - at for layout in (first, second)]
    for layout in {first, second}:
        layout.data += data[at:end]
    count = 0
    layout, other = first, second
    while at < end:
        base = bases[count & 1]
        mask = data[at : at + layout.mask_bytes]
        at += layout.mask_bytes
        if at > end:
            raise broken("an image ends inside its mask of nulls")
        steps, tail = layout.steps(mask)
        note = layout.bounds.append
        note(base + at)
        for skip, prefix in steps:
            at += skip
            if prefix:
                at += prefix + int.from_bytes(data[at : at + prefix], "little")
            note(base + at)
        at += tail
        layout.nulls += mask
        layout.count += 1
        count += 1
        layout, other = other, layout
    if at != end:
        raise broken("an image goes beyond its event")
    if first is not second and count & 1:
        raise broken("an update has no second image")
    return count


def scns_and_ords(runs: Sequence[Run]) -> tuple[pa.Array, pa.Array]:
    """Return the SCN (64 bits) and the ord (32 bits) of each image of some runs."""
    counts = np.array([run.count for run in runs])
    scns = np.repeat(np.array([run.scn for run in runs], np.int64), counts)
    # Inside a run they rise with the place.
    ahead = np.array([run.ord for run in runs]) - (np.cumsum(counts) - counts)
    ords = np.arange(len(scns)) + np.repeat(ahead, counts)
    return pa.array(scns), pa.array(ords.astype(np.int32))
