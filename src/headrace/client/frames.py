"""The frames of one answer: blocks, and notes between them.

Every block comes in memory of its own, whose rows are views into it later on; its header was checked before that memory
was taken, so damage never makes us ask for more than there is. A large block's checksums are computed while it comes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from headrace.client.http import Answer
from headrace.client.memory import BlockMemory
from headrace.errors import BlockTooLarge, ProtocolError, RelayUnavailable
from headrace.wire.block import (
    HEADER_BYTES,
    MAGIC,
    BlockFrame,
    BlockHeader,
    read_directory,
    read_header,
)
from headrace.wire.notes import PREFIX_BYTES, decode_note, frame_length
from headrace.wire.refusals import error_of

__all__ = ["Note", "Stream"]


class Note(NamedTuple):
    """``heartbeat`` or ``end``, and what belongs to it."""

    kind: str
    said: dict[str, Any]


class Stream:
    """The frames of one answer.

    Args:
        url: whose answer it is.
        answer: its body was not read yet.
        memory: for large blocks.
        max_block_bytes: a larger block is refused.

    Attributes:
        oldest_scn: what the relay held when the stream began.
        covered_scn: likewise, its newest.
        log: identity of the change log that it comes from, empty when the relay tells none.
        routes: version of the relay's routing document.
    """

    def __init__(self, url: str, answer: Answer, memory: BlockMemory, max_block_bytes: int) -> None:
        self._url = url
        self._answer = answer
        self._memory = memory
        self._max_block_bytes = max_block_bytes
        self.oldest_scn = int(answer.headers.get("headrace-oldest-scn") or 0)
        self.covered_scn = int(answer.headers.get("headrace-covered-scn") or 0)
        self.log = answer.headers.get("headrace-log", "")
        self.routes = int(answer.headers.get("headrace-routes") or 0)
        self._coming = self._frames()
        self._begun = False
        self._wait_s: float | None = None

    def frames(self) -> Iterator[BlockFrame | Note]:
        """Yield blocks and notes as they come, the last one a note ``end``.

        Raises:
            RelayUnavailable: the connection was cut, or gave nothing in time.
            ProtocolError: what came is no frame, or a block's header is damaged.
            BlockTooLarge: a block is larger than this client takes.
            HeadraceError: what a note ``error`` says.
        """
        while (frame := self.next()) is not None:
            yield frame

    def next(self, wait_s: float | None = None) -> BlockFrame | Note | None:
        """Return the next frame; None behind the note ``end``, or when it did not come whole in time.

        Args:
            wait_s: how long to wait for what is missing; None for as long as the connection may be silent.

        Raises:
            HeadraceError: as `frames`.
        """
        if wait_s != self._wait_s:
            self._wait_s = wait_s
            self._answer.wait(wait_s)
        if not self._begun and (small := self._small()) is not None:
            return small
        return next(self._coming, None)

    @property
    def has_more(self) -> bool:
        """Whether bytes of the next frame were received already."""
        return self._answer.has_more

    def _frames(self) -> Iterator[BlockFrame | Note | None]:
        """Yield the frames that `_small` leaves, and None each time that nothing came in time."""
        head = memoryview(bytearray(HEADER_BYTES))
        while True:
            if not self._answer.has_more and not self._answer.ended:
                yield None
                continue
            self._begun = True
            yield from self._whole(head[:PREFIX_BYTES])
            length = frame_length(head[:PREFIX_BYTES])
            if bytes(head[:4]) == MAGIC:
                yield from self._whole(head[PREFIX_BYTES:])
                # Not held here: what nobody looks at any more is the memory of a block to come.
                yield (yield from self._large(head))
                continue
            frame = memoryview(bytearray(length))
            begun = min(length, PREFIX_BYTES)
            frame[:begun] = head[:begun]
            yield from self._whole(frame[begun:])
            note = _note(frame)
            if note.said.get("reason") != "size":
                self._memory.forget()
            self._begun = note.kind == "end"
            yield note
            if note.kind == "end":
                # The last chunk is taken too: the connection may serve again.
                self._answer.fill(memoryview(bytearray(1)))
                return

    def _large(self, head: memoryview) -> Generator[None, None, BlockFrame]:
        """Return the block that begins so, and yield each time that nothing came in time."""
        header = self._taken(read_header(head))
        data = self._memory.lend(header.length)
        data[:HEADER_BYTES] = head
        yield from self._whole(data[HEADER_BYTES : header.head_length])
        try:
            entries = read_directory(data, header)
            bodies = [data[at.offset : at.offset + at.length] for at in entries]
        except ProtocolError:
            # Whoever decodes it finds that too, and has it asked for again.
            bodies = [data[header.head_length :]]
        crcs = []
        for body in bodies:
            crcs.append((yield from self._summed(body)))
        self._begun = False
        return BlockFrame(header, data, crcs)

    def _small(self) -> BlockFrame | None:
        """Return the next block where all of it was received already: most of them, on a busy stream of small ones."""
        head = self._answer.staged(HEADER_BYTES)
        if head is None or head[: len(MAGIC)] != MAGIC:
            return None
        header = self._taken(read_header(head))
        data = self._answer.take(header.length)
        return None if data is None else BlockFrame(header, memoryview(data))

    def _taken(self, header: BlockHeader) -> BlockHeader:
        if header.length > self._max_block_bytes:
            error = BlockTooLarge(header.length)
            error.next_step = f"set max_block_bytes to {header.length} or more."
            raise error
        return header

    def _whole(self, view: memoryview) -> Iterator[None]:
        """Fill the view, and yield each time that nothing came in time."""
        while (got := self._answer.fill(view)) < len(view):
            self._check_goes_on()
            view = view[got:]
            yield None

    def _summed(self, view: memoryview) -> Generator[None, None, int]:
        """Fill the view likewise, and return its CRC-32, computed while its bytes come."""
        got, crc = self._answer.fill_summed(view, 0)
        while got < len(view):
            self._check_goes_on()
            view = view[got:]
            yield None
            got, crc = self._answer.fill_summed(view, crc)
        return crc

    def _check_goes_on(self) -> None:
        if self._answer.ended:
            raise RelayUnavailable(
                f"Relay {self._url}: the stream ended without saying so.",
                next_step="none: it is asked again, here or at the next relay.",
            )


def _note(frame: memoryview) -> Note:
    said = decode_note(frame)
    if said["kind"] == "error":
        raise error_of(said.get("error") or {})
    return Note(said["kind"], said)
