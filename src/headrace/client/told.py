"""How much of an open window was told, in terms that every log of its source shares.

Ordinals are a log's own: each capture puts what it tells of tables between the rows, where it first meets them. Rows
and truncates of a transaction come in the same order everywhere, so their count leads to the same place in any log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.model.block import Block, SystemKind

__all__ = ["Told"]


class Told(NamedTuple):
    """What was told of a window from its beginning on.

    Attributes:
        changes: rows and truncates.
        events: other events behind the last of them.
    """

    changes: int = 0
    events: int = 0

    def then(self, block: Block, scn: int, above: int) -> Told:
        """Return what was told when a block's part of a transaction above an ordinal was, too."""
        changes, others = _ordinals(block, scn, above)
        if not len(changes):
            return Told(self.changes, self.events + len(others))
        return Told(self.changes + len(changes), sum(order > changes[-1] for order in others))

    def found(self, block: Block, scn: int, above: int) -> tuple[int, Told | None]:
        """Return the ordinal at which a block of another log stands when so much was told, and what is still to find.

        Args:
            block: with what follows of the transaction.
            scn: of it.
            above: nothing at or below this ordinal counts.
        """
        changes, others = _ordinals(block, scn, above)
        if self.changes > len(changes):
            last = max([above, *others, *changes[-1:].tolist()])
            return last, Told(self.changes - len(changes), self.events)
        at = int(changes[self.changes - 1]) if self.changes else above
        following = [order for order in others if order > at]
        is_more = self.changes < len(changes)
        if is_more:
            following = [order for order in following if order < changes[self.changes]]
        known = following[: self.events]
        left = self.events - len(known)
        return max([at, *known]), Told(0, left) if left and not is_more else None


def _ordinals(block: Block, scn: int, above: int) -> tuple[npt.NDArray[np.int32], Sequence[int]]:
    """Return the ordinals of a transaction's rows and truncates, and of its other events; ascending, above one."""
    parts = [np.empty(0, np.int32)]
    for body in block.bodies:
        scns = body.batch.column("_scn").to_numpy()
        first, behind = scns.searchsorted([scn, scn + 1])
        parts.append(body.batch.column("_ord").to_numpy()[first:behind])
    events = [event for event in block.system if event.scn == scn and event.ord > above]
    truncates = [event.ord for event in events if event.kind is SystemKind.TRUNCATE]
    changes = np.sort(np.concatenate([*parts, np.array(truncates, np.int32)]))
    others = sorted(event.ord for event in events if event.kind is not SystemKind.TRUNCATE)
    return changes[changes.searchsorted(above, side="right") :], others
