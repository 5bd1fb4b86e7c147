"""Blocks into windows: what a consumer is told, piece by piece, from the place where it stands.

In: blocks in the order of the stream, which may begin below that place and may hold what came before once more. Out:
pieces of windows, each change once. A transaction that spans blocks comes in as many pieces and is never held whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from headrace.client.consumer import Window
from headrace.client.errors import ClockWentBack
from headrace.client.rows import Rows, RowSlice
from headrace.client.shapes import Shape
from headrace.errors import ProtocolError
from headrace.model.block import ORIGIN_SELECT, Block, SystemEvent
from headrace.model.schema import TableId, TableSchema
from headrace.wire.place import Place

__all__ = ["Part", "Piece", "Windows"]

Part: TypeAlias = RowSlice | SystemEvent

Entry: TypeAlias = tuple[int, int, int, int, int, int, int]
"""One `TRANSACTION_DTYPE` entry as Python values."""

_SCN, _ORIGIN, _ENDS = 0, 4, 5


@dataclass(frozen=True, slots=True)
class Piece:
    """A window, or as much of it as one block holds.

    Attributes:
        window: which.
        begins: whether nothing of it came before, from the place where this consumer began.
        ends: whether nothing more of it comes.
        parts: rows and system events, in the order in which they are told.
        place: where a consumer stands that has processed the piece.
    """

    window: Window
    begins: bool
    ends: bool
    parts: list[Part]
    place: Place


class Windows:
    """Cuts blocks.

    Args:
        source: whose blocks.
        after: where the consumer stands.
        schema_of: returns the table version of a schema id.
        shapes: what the consumer asked for, by table.
        merge: make transactions of one block that follow each other one window.

    Attributes:
        place: where a consumer stands that has processed everything that `cut` gave so far.
        inside: whether a window is open there.
    """

    def __init__(
        self,
        source: str,
        after: Place,
        schema_of: Callable[[int], TableSchema],
        *,
        shapes: Mapping[TableId, Shape],
        merge: bool,
    ) -> None:
        self.place = after
        self.inside = False
        self._source = source
        self._schema_of = schema_of
        self._shapes = shapes
        self._merge = merge
        self._resumed_after = -1

    def cut(self, block: Block) -> Iterator[Piece]:
        """Yield what the block holds behind `place`.

        Raises:
            ClockWentBack: the block's transactions do not rise.
            ProtocolError: the open window does not go on where it should.
            HeadraceError: a table version is not to be had.
        """
        if len(block.index) > 1:
            scns = block.index["scn"]
            if (falls := np.flatnonzero(scns[1:] <= scns[:-1])).size:
                at = int(falls[0])
                raise ClockWentBack(int(scns[at + 1]), int(scns[at]))
        rest = block.after(self.place.after_scn)
        if len(rest.index):
            self._check_goes_on(rest.first_scn)
            entries: list[Entry] = rest.index.tolist()
            groups = list(self._groups(entries))
            cut = _Cut(rest, entries, self.place, self._rows(rest), at_once=len(groups) == 1)
            for first, behind in groups:
                yield self._piece(cut, first, behind)
        if not self.inside and self.place.whole:
            self.place = max(self.place, Place(block.covered_scn))

    def cover(self, scn: int) -> None:
        """Take note that nothing more comes up to ``scn``."""
        if not self.inside and self.place.whole:
            self.place = max(self.place, Place(scn))

    def _rows(self, block: Block) -> list[Rows]:
        return [
            Rows(body, self._schema_of(body.schema_id), self._shapes.get(body.table))
            for body in block.bodies
        ]

    def _check_goes_on(self, scn: int) -> None:
        if not self.place.whole and scn != self.place.scn:
            raise ProtocolError(
                f"The rest of transaction {self.place.scn} behind change {self.place.ord} did not come: "
                f"the stream goes on with {scn}.",
                next_step="none: it is asked for again; see the relay's log if that does not help.",
            )

    def _groups(self, entries: list[Entry]) -> Iterator[tuple[int, int]]:
        """Yield ``(first, behind)``: index entries that make one window."""
        first = 0
        for i, entry in enumerate(entries):
            goes_on = i == 0 and not self.place.whole
            following = entries[i + 1] if i + 1 < len(entries) else None
            if (
                not self._merge
                or goes_on
                or following is None
                or not following[_ENDS]
                or following[_ORIGIN] != entry[_ORIGIN]
            ):
                yield first, i + 1
                first = i + 1

    def _piece(self, cut: _Cut, first: int, behind: int) -> Piece:
        """Return one piece, and stand behind it."""
        scn, commit_us, xid, _, origin, ends, _ = cut.entries[behind - 1]
        inside = self.place.ord if self.place.scn == scn else -1
        begins = not self.inside
        if begins:
            self._resumed_after = inside
        window = Window(
            self._source,
            scn,
            cut.entries[first][_SCN],
            behind - first,
            commit_us,
            xid if behind - first == 1 else 0,
            "select" if origin == ORIGIN_SELECT else "log",
            self._resumed_after,
        )
        place = Place(scn) if ends else Place(scn, max(inside, cut.last_ord(behind - 1)))
        self.place, self.inside = place, not ends
        return Piece(window, begins, bool(ends), cut.parts(first, behind), place)


class _Cut:
    """One block behind a place, with the rows of each transaction found once for all of them."""

    def __init__(
        self, block: Block, entries: list[Entry], after: Place, tables: list[Rows], *, at_once: bool
    ) -> None:
        self.entries = entries
        self._events = list(block.system)
        self._tables: list[tuple[Rows, list[int], list[int]]] = []
        scns = block.index["scn"]
        inside = not after.whole and entries[0][_SCN] == after.scn
        for rows in tables:
            if at_once:
                # All of the block is one window: nobody has to know where a transaction begins.
                first, behind = [0] * len(entries), [rows.count] * len(entries)
            else:
                first = rows.scns.searchsorted(scns, "left").tolist()
                behind = rows.scns.searchsorted(scns, "right").tolist()
            if inside:
                first[0] = rows.place_of(after.scn, after.ord + 1)
            self._tables.append((rows, first, behind))
        if inside:
            self._events = [e for e in self._events if (e.scn, e.ord) > (after.scn, after.ord)]

    def parts(self, first: int, behind: int) -> list[Part]:
        """Return what some index entries hold, in the order in which it is told."""
        ranges = [(rows, lo[first], hi[behind - 1]) for rows, lo, hi in self._tables]
        if not self._events:
            return _in_order(ranges)
        parts: list[Part] = []
        low, high = self.entries[first][_SCN], self.entries[behind - 1][_SCN]
        for event in self._events:
            if low <= event.scn <= high:
                split = [
                    (rows, lo, min(hi, max(lo, rows.place_of(event.scn, event.ord))), hi)
                    for rows, lo, hi in ranges
                ]
                parts += [*_in_order([(rows, lo, mid) for rows, lo, mid, _ in split]), event]
                ranges = [(rows, mid, hi) for rows, _, mid, hi in split]
        return parts + _in_order(ranges)

    def last_ord(self, at: int) -> int:
        """Return the last ordinal that an index entry holds, -1 when it holds nothing."""
        scn = self.entries[at][_SCN]
        ords = [int(rows.ords[hi[at] - 1]) for rows, lo, hi in self._tables if lo[at] < hi[at]]
        return max(ords + [event.ord for event in self._events if event.scn == scn], default=-1)


def _in_order(ranges: list[tuple[Rows, int, int]]) -> list[Part]:
    """Return the slices that hold rows, in the order of their first ones."""
    held = [RowSlice(*found) for found in ranges if found[1] < found[2]]
    if len(held) > 1:
        held.sort(key=lambda part: (part.rows.scns[part.start], part.rows.ords[part.start]))
    return [*held]
