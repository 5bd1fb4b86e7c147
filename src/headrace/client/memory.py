"""Memory for large blocks that is used again.

The system clears each page before it gives it to anybody, and what was in use a moment ago lies in the processor's
caches: a consumer that lets a block go before the next one comes gets the next one into the same memory, for half of
what receiving costs otherwise. Whoever keeps rows keeps the memory they lie in; the next block has other memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.wire.block import ALIGNMENT

__all__ = ["BlockMemory"]

_MOST_BYTES = 64 * 2**20
"""Kept for blocks to come: somebody may have let go of many at once."""
_MOST_SPARE = 1.5
"""No block gets memory of more than so many times its length: whose rows are kept would keep all of it."""
_ROOM = 1.125
"""New memory is so much longer than the block that wants it: blocks that follow each other differ a little."""


class BlockMemory:
    """Lends memory, and has it back when nobody looks at the block in it any more; from any thread."""

    def __init__(self) -> None:
        # Given back wherever the last view of a block goes, in the middle of anything: each change is one step.
        self._kept: list[npt.NDArray[np.uint8]] = []

    def lend(self, length: int) -> memoryview:
        """Return so many bytes, aligned as blocks are, in which something may stand already."""
        others = []
        found = None
        while found is None and (last := self._last()) is not None:
            if length + ALIGNMENT <= last.nbytes <= length * _MOST_SPARE + ALIGNMENT:
                found = last
            else:
                others.append(last)
        self._kept[:0] = others
        if found is None:
            found = np.empty(int(length * _ROOM) + ALIGNMENT, np.uint8)
        lent = found.view(_Lent)
        lent.owner = self
        start = -lent.ctypes.data % ALIGNMENT
        return lent.data[start : start + length]

    def take_back(self, memory: npt.NDArray[np.uint8]) -> None:
        """Keep memory for a block to come, and let go of what was kept longest where it is too much."""
        self._kept.append(memory)
        while self.kept_bytes > _MOST_BYTES:
            del self._kept[:1]

    @property
    def kept_bytes(self) -> int:
        """Bytes that wait for a block to come."""
        return sum(kept.nbytes for kept in tuple(self._kept))

    def forget(self) -> None:
        """Let go of what is kept: no block is coming."""
        self._kept.clear()

    def _last(self) -> npt.NDArray[np.uint8] | None:
        try:
            return self._kept.pop()
        except IndexError:
            return None


class _Lent(np.ndarray[Any, Any]):
    """Knows whose it is: views into it are all that holds it."""

    owner: BlockMemory

    def __del__(self) -> None:
        if self.base is not None:
            self.owner.take_back(self.base)
