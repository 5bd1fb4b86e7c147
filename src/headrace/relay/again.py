"""What a source sends again must be what the change log holds.

A source that was set back to an older state goes on from its old position under its old name, and writes other
transactions where we hold ours. Nothing of them may be taken for what we have: they would be left out in silence.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from headrace.errors import SourceReplaced
from headrace.model.block import Block

__all__ = ["SentAgain"]


class SentAgain:
    """Compares, after the log was opened, what comes again with what is held.

    Args:
        held: transaction index of what the change log holds behind the acknowledged position, of log origin.
        upto_scn: last whole transaction of the change log.
        name: of the source.
        expected: whether a transaction that is held has to come again: one of its tables is still captured.
    """

    def __init__(
        self,
        held: npt.NDArray[np.void],
        upto_scn: int,
        name: str,
        expected: Callable[[int], bool],
    ) -> None:
        self._name = name
        self._expected = expected
        self._upto_scn = upto_scn
        self._held: dict[int, tuple[int, int]] = {}
        for entry in held:
            if entry["scn"] <= upto_scn and entry["last_piece"]:
                self._held[int(entry["scn"])] = _identity(entry)

    def check(self, block: Block) -> None:
        """Take note of a block as the source sent it.

        Raises:
            SourceReplaced: a transaction differs from the one that is held at its place, or does not come again.
        """
        if not self._held:
            return
        for entry in block.index:
            scn = int(entry["scn"])
            if scn > self._upto_scn:
                break
            # One that is not held had no rows of ours when it was captured, as when a table was left out then.
            known = self._held.get(scn)
            if known is not None and known != _identity(entry):
                raise self._replaced(scn)
            if entry["last_piece"]:
                self._held.pop(scn, None)
        for missing in [scn for scn in self._held if scn <= block.covered_scn]:
            if self._expected(missing):
                raise self._replaced(missing)
            del self._held[missing]

    def _replaced(self, scn: int) -> SourceReplaced:
        return SourceReplaced(
            f"The source {self._name} was set back to an older state: the transaction with SCN {scn}, which the "
            "change log holds, is not in its log any more. RESYNC NEEDED.",
            next_step="`headrace resync FILE` compares the tables and repairs what differs; or point source.url "
            "at the database that was captured.",
        )


def _identity(entry: np.void) -> tuple[int, int]:
    return int(entry["xid"]), int(entry["commit_us"])
