"""Which life of the source the change log follows, and how its positions become SCNs."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.state.store import StateStore
from headrace.state.writer import StateWriter

__all__ = ["Incarnation"]

_NAME, _OFFSET, _SINCE = "incarnation", "scn_offset", "since_scn"


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One life of the source: a restore or a promotion begins another.

    Attributes:
        name: as `headrace.sources.base.Source.incarnation` tells it.
        offset: what is added to the source's own numbers, so that SCNs rise across lives.
        since_scn: transactions up to here belong to earlier lives, or to the time before a gap: their transaction ids
            say nothing about what a snapshot of the source sees now. 0 in the first life.
    """

    name: str
    offset: int = 0
    since_scn: int = 0

    @classmethod
    def read(cls, state: StateStore) -> Incarnation | None:
        """Return what is kept, None before the first start."""
        name = state.get(_NAME)
        if name is None:
            return None
        return cls(name, int(state.get(_OFFSET) or 0), int(state.get(_SINCE) or 0))

    def keep(self, writer: StateWriter) -> None:
        """Write it down, in the transaction of ``writer``."""
        writer.set(_NAME, self.name)
        writer.set(_OFFSET, str(self.offset))
        writer.set(_SINCE, str(self.since_scn))
