"""The stream behind one place, cut into what somebody wants, whatever happens to relays and connections.

Fetcher, buffer, decoding and cutting put together: what callbacks, iteration and ranges stand on. A block that fails a
checksum is not delivered but asked for again, from the place that was reached.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from headrace.client.buffer import ByteBuffer
from headrace.client.errors import ClockWentBack, DamagedBlock
from headrace.client.fetcher import Answered, Fetcher
from headrace.client.reading import Began, Covered, Ended, Failed, Item
from headrace.client.relays import Relays
from headrace.client.transport import StreamRequest
from headrace.errors import HeadraceError, ProtocolError
from headrace.model.block import Block
from headrace.wire.block import BlockFrame, decode_merged
from headrace.wire.place import Place

__all__ = ["Cutter", "Feed"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_MERGED_BYTES = 2**20
"""Small blocks that wait together are decoded together, up to this size."""
_MOST_DAMAGED = 5
"""Damaged blocks at one place after which nobody believes in chance any more."""


class Cutter(Protocol[T_co]):
    """Makes of decoded blocks what somebody wants, each change once."""

    @property
    def place(self) -> Place:
        """Behind everything that was given."""
        ...

    def cut(self, block: Block) -> Iterator[T_co]:
        """Yield what a block holds behind `place`, which moves along.

        Raises:
            ProtocolError: it does not go on where it should; the next relay is asked.
        """
        ...

    def cover(self, scn: int) -> None:
        """Take note that nothing more comes up to ``scn``."""
        ...

    def began(self, log: str, *, elsewhere: bool) -> None:
        """Take note which log goes on; another one does from the beginning of the open window at the latest."""
        ...


class Feed(Generic[T]):
    """One run of receiving, from a place on.

    Args:
        relays: where from.
        request: what for.
        cutter: cuts blocks; stands where the request begins.
        buffer_bytes: received and not yet decoded at most, one block more.
        patience_s: as `Fetcher` has it.
        pull_every_s: likewise.
        pause: waits for some seconds, or until somebody wants something else.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        relays: Relays,
        request: StreamRequest,
        cutter: Cutter[T],
        *,
        buffer_bytes: int,
        patience_s: float,
        pull_every_s: float,
        pause: Callable[[float], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._relays = relays
        self._request = request
        self._cutter = cutter
        self._buffer_bytes = buffer_bytes
        self._patience_s = patience_s
        self._pull_every_s = pull_every_s
        self._pause = pause
        self._clock = clock
        self._connections = self._peak_bytes = 0
        self._damaged = 0
        self._damaged_at = Place(-1)
        self._begin()

    @property
    def place(self) -> Place:
        """Behind everything that was given."""
        return self._cutter.place

    @property
    def counts(self) -> tuple[int, int, int]:
        """Answers of relays that began, bytes that wait now, and the most that ever did."""
        return (
            self._connections + self._fetcher.connections,
            self._buffer.held_bytes,
            max(self._peak_bytes, self._buffer.peak_bytes),
        )

    @property
    def last_error(self) -> HeadraceError | None:
        """Why the last answer ended early."""
        return self._fetcher.last_error

    def pieces(self, timeout_s: float) -> Iterator[T | None]:
        """Yield pieces as they come; None when coverage moved or nothing came in time.

        Ends when everything that was asked for was given.

        Raises:
            HeadraceError: no relay can go on.
        """
        while not (yield from self._taken(self._buffer.take(timeout_s, _MERGED_BYTES))):
            yield None

    def _taken(self, items: list[Item]) -> Generator[T | None, None, bool]:
        """Yield the pieces of what was taken, of which nothing is held afterwards; return whether it was the end."""
        for run in _runs(items):
            if isinstance(run, Failed):
                raise run.error
            if isinstance(run, Ended):
                return True
            if isinstance(run, Covered):
                self._cutter.cover(run.scn)
            elif isinstance(run, Began):
                self._cutter.began(run.log, elsewhere=run.elsewhere)
            else:
                try:
                    for block in self._decoded(run):
                        yield from self._cutter.cut(block)
                except ClockWentBack:
                    raise
                except ProtocolError as error:
                    self._ask_anew(error)
                    break
        return False

    def wake(self) -> None:
        """Make `pieces` give something soon; from any thread."""
        self._buffer.wake()

    def close(self) -> None:
        """End."""
        self._fetcher.stop()

    def _begin(self, answered_by: Answered | None = None) -> None:
        self._buffer: ByteBuffer[Item] = ByteBuffer(self._buffer_bytes)
        self._fetcher = Fetcher(
            self._relays,
            replace(self._request, after=self.place),
            self._buffer,
            delivered=lambda: self._cutter.place,
            answered_by=answered_by,
            patience_s=self._patience_s,
            pull_every_s=self._pull_every_s,
            clock=self._clock,
        )
        self._fetcher.start()

    def _decoded(self, frames: list[BlockFrame]) -> list[Block]:
        """Return the blocks of some frames.

        Raises:
            ProtocolError: one of them is damaged.
        """
        blocks = decode_merged(frames)
        if self._request.upto is not None:
            return [block.upto(self._request.upto) for block in blocks]
        return blocks

    def _ask_anew(self, error: ProtocolError) -> None:
        """Ask the next relay for what comes behind the place: what came is damaged, or no rest of the open window.

        Raises:
            DamagedBlock: it was so too often.
        """
        self._damaged = self._damaged + 1 if self._damaged_at == self.place else 1
        self._damaged_at = self.place
        if self._damaged >= _MOST_DAMAGED:
            raise DamagedBlock(error.message, next_step=error.next_step) from error
        self._fetcher.stop()
        self._connections, _, self._peak_bytes = self.counts
        self._pause(self._relays.failed())
        self._begin(self._fetcher.answered_by)


def _runs(items: list[Item]) -> Iterator[list[BlockFrame] | Began | Covered | Ended | Failed]:
    """Yield the items, neighbouring frames together as far as they may become one block."""
    frames: list[BlockFrame] = []
    for item in items:
        if isinstance(item, BlockFrame):
            frames.append(item)
            if item.header.ends_complete:
                continue
        if frames:
            yield frames
            frames = []
        if not isinstance(item, BlockFrame):
            yield item
    if frames:
        yield frames
