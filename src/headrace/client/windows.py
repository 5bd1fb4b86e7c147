"""Blocks into windows: what a consumer is told, piece by piece, from the place where it stands.

In: blocks in the order of the stream, which may begin below that place and may hold what came before once more. Out:
pieces of windows, each change once. A transaction that spans blocks comes in as many pieces and is never held whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.client.consumer import Window
from headrace.client.errors import ClockWentBack
from headrace.client.rows import Rows, RowSlice
from headrace.client.shapes import Shape
from headrace.client.told import Told
from headrace.errors import ProtocolError
from headrace.model.block import ORIGIN_LOG, Block, SystemEvent
from headrace.model.schema import TableId, TableSchema
from headrace.wire.place import Inside, Place

__all__ = ["Part", "Piece", "Windows"]

Part: TypeAlias = RowSlice | SystemEvent

Entry: TypeAlias = tuple[int, int, int, int, int, int, int]
"""One `TRANSACTION_DTYPE` entry as Python values."""

_SCN, _ORIGIN = 0, 4
_FEW = 64
"""Index entries up to which Python looks at them sooner than NumPy begins."""


class Piece(NamedTuple):
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
        self._log = after.log
        # Of the open window; None where it is gone on with, and nobody knows how much of it was told.
        self._told = None if after.changes is None else Told(after.changes)
        self._to_find: Told | None = None

    def cut(self, block: Block) -> Iterator[Piece]:
        """Yield what the block holds behind `place`.

        Raises:
            ClockWentBack: the block's transactions do not rise.
            ProtocolError: the open window does not go on where it should.
            HeadraceError: a table version is not to be had.
        """
        if (piece := self._only(block)) is not None:
            yield piece
        else:
            yield from self._pieces(block)
        self.cover(block.covered_scn)

    def cover(self, scn: int) -> None:
        """Take note that nothing more comes up to ``scn``."""
        if not self.inside and self.place.whole and scn > self.place.scn:
            self.place = Place(scn)

    def began(self, log: str, *, elsewhere: bool) -> None:
        """Take note which log goes on; another one does from the beginning of the open window at the latest."""
        self._log = log
        if elsewhere and not self.place.whole and self._told is not None:
            self.place, self._to_find = self._at(self.place.scn, -1), self._told

    def _only(self, block: Block) -> Piece | None:
        """Return the block as one window where it is one and nothing was told of it; stand behind it then.

        So are most blocks of a stream that somebody follows, and what is done to each is what following costs.
        """
        if not 0 < len(block.index) <= _FEW or block.system or self.inside or not self.place.whole:
            return None
        entries: list[Entry] = block.index.tolist()
        scn, commit_us, xid, _, origin, ends, _ = last = entries[-1]
        first_scn = entries[0][_SCN]
        if first_scn <= self.place.scn or not ends:
            return None
        if last is not entries[0] and not (self._merge and _is_one(entries)):
            return None
        window = Window(
            self._source,
            scn,
            first_scn,
            len(entries),
            commit_us,
            xid if len(entries) == 1 else 0,
            "log" if origin == ORIGIN_LOG else "select",
        )
        parts = _in_order([(rows, 0, rows.count) for rows in self._rows(block)])
        self.place = Place(scn)
        return Piece(window, True, True, parts, self.place)

    def _pieces(self, block: Block) -> Iterator[Piece]:
        """Yield what any block holds behind the place, and stand behind each."""
        if len(block.index) > 1:
            scns = block.index["scn"]
            rises = scns[1:] > scns[:-1]
            if not rises.all():
                at = int(rises.argmin())
                raise ClockWentBack(int(scns[at + 1]), int(scns[at]))
        rest = block.after(self.place.after_scn)
        if len(rest.index):
            self._check_goes_on(rest.first_scn)
            if self._to_find is not None:
                scn, above = self.place
                at, self._to_find = self._to_find.found(rest, scn, above)
                self.place = self._at(scn, at)
                if self._to_find is not None and not rest.ends_complete:
                    # All of it was told before.
                    return
            cut = _Cut(rest, self._lasts(rest.index), self.place, self._rows(rest))
            for number, last in enumerate(cut.lasts):
                yield self._piece(cut, number, last)

    def _at(self, scn: int, order: int) -> Place:
        """Return a place inside the open window."""
        return Inside(scn, order, self._log, None if self._told is None else self._told.changes)

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

    def _lasts(self, index: npt.NDArray[np.void]) -> npt.NDArray[np.intp]:
        """Return the place of the last index entry of each window."""
        count = len(index)
        if count == 1 or not self._merge:
            return np.arange(count)
        # A transaction joins the one before it unless it is open or of another kind, or that one began earlier.
        joins = (index["last_piece"][1:] != 0) & (index["origin"][1:] == index["origin"][:-1])
        if not self.place.whole:
            joins[0] = False
        elif joins.all():
            # Most blocks of a busy stream; a few calls of NumPy are much of what such a block costs.
            return np.array([count - 1])
        return np.append(np.flatnonzero(~joins), count - 1)

    def _piece(self, cut: _Cut, number: int, last: Entry) -> Piece:
        """Return one piece, and stand behind it."""
        scn, commit_us, xid, _, origin, ends, _ = last
        inside = self.place.ord if self.place.scn == scn else -1
        begins = not self.inside
        if begins:
            self._resumed_after = inside
            if inside < 0:
                self._told = Told()
        if not ends and self._told is not None:
            self._told = self._told.then(cut.block, scn, inside)
        transactions = cut.transactions[number]
        window = Window(
            self._source,
            scn,
            cut.first_scns[number],
            transactions,
            commit_us,
            xid if transactions == 1 else 0,
            "log" if origin == ORIGIN_LOG else "select",
            self._resumed_after,
        )
        place = Place(scn) if ends else self._at(scn, max(inside, cut.last_ord(scn)))
        self.place, self.inside = place, not ends
        return Piece(window, begins, bool(ends), cut.parts(number), place)


class _Cut:
    """One block behind a place, with the rows of each window found once for all of them.

    Args:
        block: the part behind the place.
        lasts: places of the windows' last index entries.
        after: the place.
        tables: the block's rows.

    Attributes:
        block: the part behind the place.
        lasts: these entries.
        first_scns: of each window.
        transactions: likewise.
    """

    def __init__(
        self, block: Block, lasts: npt.NDArray[np.intp], after: Place, tables: list[Rows]
    ) -> None:
        self.block = block
        self.lasts: list[Entry]
        self.first_scns: list[int]
        self.transactions: list[int]
        self._tables: list[tuple[Rows, list[int], list[int]]]
        self._events = list(block.system)
        if len(lasts) == 1:
            self.lasts = [block.index[-1].item()]
            self.first_scns = [block.first_scn]
            self.transactions = [len(block.index)]
            self._tables = [(rows, [0], [rows.count]) for rows in tables]
        else:
            firsts = np.concatenate(([0], lasts[:-1] + 1))
            scns = block.index["scn"]
            self.lasts = block.index[lasts].tolist()
            self.first_scns = scns[firsts].tolist()
            self.transactions = (lasts + 1 - firsts).tolist()
            self._tables = [
                (
                    rows,
                    rows.scns.searchsorted(scns[firsts], "left").tolist(),
                    rows.scns.searchsorted(scns[lasts], "right").tolist(),
                )
                for rows in tables
            ]
        if not after.whole and self.first_scns[0] == after.scn:
            for rows, lo, _ in self._tables:
                lo[0] = rows.place_of(after.scn, after.ord + 1)
            self._events = [e for e in self._events if (e.scn, e.ord) > (after.scn, after.ord)]

    def parts(self, number: int) -> list[Part]:
        """Return what a window holds, in the order in which it is told."""
        ranges = [(rows, lo[number], hi[number]) for rows, lo, hi in self._tables]
        if not self._events:
            return _in_order(ranges)
        parts: list[Part] = []
        low, high = self.first_scns[number], self.lasts[number][_SCN]
        for event in self._events:
            if low <= event.scn <= high:
                split = [
                    (rows, lo, min(hi, max(lo, rows.place_of(event.scn, event.ord))), hi)
                    for rows, lo, hi in ranges
                ]
                parts += [*_in_order([(rows, lo, mid) for rows, lo, mid, _ in split]), event]
                ranges = [(rows, mid, hi) for rows, _, mid, hi in split]
        return parts + _in_order(ranges)

    def last_ord(self, scn: int) -> int:
        """Return the last ordinal that the block holds of a transaction, -1 when it holds nothing."""
        ords = [event.ord for event in self._events if event.scn == scn]
        for rows, _, _ in self._tables:
            start, stop = rows.place_of(scn, -1), rows.place_of(scn + 1, -1)
            if start < stop:
                ords.append(int(rows.ords[stop - 1]))
        return max(ords, default=-1)


def _is_one(entries: Sequence[Entry]) -> bool:
    """Whether the transactions rise, end and are of one kind, so that they may be one window."""
    before, kind = -1, entries[0][_ORIGIN]
    for scn, _, _, _, origin, ends, _ in entries:
        if scn <= before or not ends or origin != kind:
            return False
        before = scn
    return True


def _in_order(ranges: list[tuple[Rows, int, int]]) -> list[Part]:
    """Return the slices that hold rows, in the order of their first ones."""
    held = [RowSlice(*found) for found in ranges if found[1] < found[2]]
    if len(held) > 1:
        held.sort(key=lambda part: (part.rows.scns[part.start], part.rows.ords[part.start]))
    return [*held]
