"""One answer of a relay, item by item: what it holds is checked as far as headers tell, and nothing is decoded.

Whoever has it reads from it: one thread at a time, not always the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from headrace.client.errors import ClockWentBack
from headrace.client.frames import Note
from headrace.client.transport import AnyStream
from headrace.errors import HeadraceError, ProtocolError, RelayUnavailable
from headrace.wire.block import BlockFrame, BlockHeader
from headrace.wire.place import Place

__all__ = ["Began", "Covered", "Ended", "Failed", "Item", "Reading", "nbytes"]


@dataclass(frozen=True, slots=True)
class Began:
    """Another answer begins: its first block may hold what came before once more.

    Attributes:
        elsewhere: whether another log gives it than the one before.
        log: identity of that log, empty when it is not known.
    """

    elsewhere: bool = False
    log: str = ""


@dataclass(frozen=True, slots=True)
class Covered:
    """Everything up to this SCN was sent."""

    scn: int


@dataclass(frozen=True, slots=True)
class Ended:
    """What was asked for is complete."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Receiving is over: no relay can go on."""

    error: Exception


Item: TypeAlias = BlockFrame | Began | Covered | Ended | Failed


def nbytes(item: Item) -> int:
    """Return how many bytes an item holds."""
    return len(item.data) if isinstance(item, BlockFrame) else 0


class Reading:
    """One answer on its way.

    Args:
        stream: where it comes from.
        after: what was asked for.
        upto: likewise.

    Attributes:
        place: everything up to here came, with this answer or before it.
        finished: None while it goes on; then whether everything that was asked for came.
        is_drained: whether it ended because the relay had no more.
    """

    def __init__(self, stream: AnyStream, after: Place, upto: int | None) -> None:
        self._stream = stream
        self._upto = upto
        self._order = _Order(after)
        self._failure: HeadraceError | None = None
        self.place = after
        self.finished: bool | None = None
        self.is_drained = False

    def next(self, wait_s: float | None) -> Item | None:
        """Return the next item; None when there is none to pass on, or nothing came in time.

        Args:
            wait_s: as `Stream.next` has it.

        Raises:
            ClockWentBack: transactions come that are not above those before.
            HeadraceError: as `Stream.frames`.
        """
        frame = self._stream.next(wait_s)
        if frame is None:
            return None
        if isinstance(frame, Note):
            return self._noted(frame)
        header = frame.header
        self._order.check(header)
        came = max(header.complete_scn, header.covered_scn)
        if came > self.place.scn or (came == self.place.scn and not self.place.whole):
            self.place = Place(came)
        return frame

    def read(self, wait_s: float, most_bytes: int) -> tuple[list[Item], int]:
        """Return what comes within some seconds and what is there with it, and its bytes; nothing once it is over.

        A failure ends it too; `raise_failure` tells. Ends where another item as large as the largest would be too much.
        """
        items: list[Item] = []
        size = largest = 0
        try:
            while self.finished is None and self._failure is None:
                item = self.next(wait_s)
                if item is None:
                    break
                items.append(item)
                held = nbytes(item)
                size += held
                largest = max(largest, held)
                if size + largest > most_bytes or not self._stream.has_more:
                    break
        except HeadraceError as error:
            self._failure = error
        return items, size

    def raise_failure(self) -> None:
        """Raise what ended `read`, if something did."""
        if self._failure is not None:
            raise self._failure

    def _noted(self, note: Note) -> Item | None:
        if note.kind == "heartbeat":
            covered = Place(int(note.said.get("covered_scn", 0)))
            if covered <= self.place:
                return None
            self.place = covered
            return Covered(covered.scn)
        if note.kind != "end":
            return None
        reason = note.said.get("reason")
        if reason == "shutdown":
            raise RelayUnavailable(
                "The relay ends.", next_step="none: the next relay of the list is asked."
            )
        self.finished = reason == "upto"
        self.is_drained = reason == "drained"
        return Covered(self._upto) if self.finished and self._upto is not None else None


class _Order:
    """Transactions of one answer rise, and begin above what was asked for."""

    def __init__(self, after: Place) -> None:
        self._last = after.after_scn
        self._open = False
        self._began = False

    def check(self, header: BlockHeader) -> None:
        """Look at the range of the next block.

        Raises:
            ClockWentBack: transactions come that are not above those before.
            ProtocolError: a transaction that spans blocks ended without its last piece.
        """
        if not header.transactions:
            return
        if not self._began and header.last_scn <= self._last < header.covered_scn:
            # A block that goes on behind the place, of which a filter left only what lies before it.
            return
        goes_on = self._open and header.first_scn == self._last
        # Nothing is cut from a block: the first may hold what lies below, but not that alone.
        lowest_new = header.first_scn if self._began else header.last_scn
        if lowest_new <= self._last and not goes_on:
            raise ClockWentBack(lowest_new, self._last)
        if self._open and not goes_on:
            raise ProtocolError(
                f"Transaction {self._last} goes on in the next block, which begins with {header.first_scn}.",
                next_step="none: it is asked for again; see the relay's log if that does not help.",
            )
        self._began = True
        self._last, self._open = header.last_scn, not header.ends_complete
