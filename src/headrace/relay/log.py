"""The change log as capture needs it: the port, and what a start asks of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from headrace.errors import ScnNotFound
from headrace.model.block import ORIGIN_LOG, Block

__all__ = ["Log", "streamed"]


class Log(Protocol):
    """What capture needs of a change log; `headrace.changelog` is the one that ships."""

    @property
    def complete_scn(self) -> int:
        """SCN of the last whole transaction that is durable."""
        ...

    @property
    def covered_scn(self) -> int:
        """SCN up to which the log is known to hold everything."""
        ...

    def append(self, block: Block) -> None:
        """Take a block; not readable and not durable yet."""
        ...

    def begin_sync(self) -> None:
        """Let what is appended become durable while the caller goes on; `sync` waits for it."""
        ...

    def sync(self) -> None:
        """Make everything appended durable, then readable."""
        ...

    def rewind(self) -> None:
        """Forget everything behind the last whole durable transaction: the source sends it again."""
        ...

    def keep(self, retain_bytes: int | None, retain_s: float | None) -> None:
        """Retain so much for late readers from now on; None for what the configuration says."""
        ...

    def retain(self, needed_scn: int) -> None:
        """Drop what may be dropped; nothing above ``needed_scn``, which capture itself may read again."""
        ...

    def blocks(self, after_scn: int) -> Iterator[Block]:
        """Yield what is durable above an SCN."""
        ...

    def streamed(self, after_scn: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        """Return the transaction index above an SCN.

        Raises:
            ScnNotFound: the log no longer reaches back so far.
        """
        ...


def streamed(log: Log, after_scn: int) -> npt.NDArray[np.void]:
    """Return the index of the source's own transactions above an SCN, as far as the log reaches back."""
    try:
        index = log.streamed(after_scn)
    except ScnNotFound as error:
        index = log.streamed(error.oldest - 1)
    logged: npt.NDArray[np.void] = index[index["origin"] == ORIGIN_LOG]
    return logged
