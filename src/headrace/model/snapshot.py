"""Which streamed transactions a chunk's read has seen.

``vis(chunk, transaction)`` is the one source-specific question of the watermark algorithm; everything else in
`headrace.watermark` is the same for every source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["NO", "UNKNOWN", "YES", "TransactionSnapshot", "Visibility"]

YES = 1
"""The read saw the transaction."""
NO = 0
"""The read did not see the transaction."""
UNKNOWN = -1
"""Nobody can say."""


class Visibility(Protocol):
    """What one read of the source saw."""

    def sees(self, xid: npt.NDArray[np.int64], scn: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
        """Return `YES`, `NO` or `UNKNOWN` per transaction.

        Args:
            xid: source transaction ids, 64 bits.
            scn: their SCNs, same length.
        """
        ...


@dataclass(frozen=True, slots=True)
class TransactionSnapshot:
    """A snapshot by transaction ids, as PostgreSQL's ``pg_current_snapshot()`` states it.

    Attributes:
        xmin: every id below was finished.
        xmax: no id from here on was finished.
        xip: ids between that were still running.

    A commit is in the log before it leaves ``xip``, and a fresh id may be at or above ``xmax`` while its commit
    has been streamed: both must be asked for.
    """

    xmin: int
    xmax: int
    xip: frozenset[int]

    def sees(self, xid: npt.NDArray[np.int64], scn: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
        """Return `YES` where ``xid < xmax`` and ``xid`` was not running, else `NO`; never `UNKNOWN`."""
        del scn  # Ids say it all here.
        seen = xid < self.xmax
        if self.xip:
            seen &= ~np.isin(xid, np.fromiter(self.xip, np.int64))
        return seen.astype(np.int8)

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(str(xid) for xid in sorted(self.xip))}"

    @classmethod
    def parse(cls, text: str) -> TransactionSnapshot:
        """Read ``xmin:xmax:xip,xip,…``."""
        xmin, xmax, xip = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(int(x) for x in xip.split(",") if x))
