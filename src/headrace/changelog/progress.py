"""How far a walk over blocks has come; the same sum for the writer, the recovery and the index."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.changelog.segment import SegmentHeader
from headrace.wire.block import BlockHeader

__all__ = ["Progress"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Positions after some blocks.

    Attributes:
        last_scn: greatest SCN, an open transaction's included.
        complete_scn: greatest SCN of a whole transaction.
        covered_scn: at least ``complete_scn``.
        commit_us: commit time of ``complete_scn``.
    """

    last_scn: int = 0
    complete_scn: int = 0
    covered_scn: int = 0
    commit_us: int = 0

    @classmethod
    def at(cls, header: SegmentHeader) -> Progress:
        """Return the positions at the beginning of a segment."""
        return cls(header.base_scn, header.complete_scn, header.covered_scn, header.commit_us)

    @property
    def is_open(self) -> bool:
        """Whether the newest transaction has not ended."""
        return self.last_scn > self.complete_scn

    def then(self, block: BlockHeader) -> Progress:
        """Return the positions after one more block."""
        complete = block.complete_scn or self.complete_scn
        return Progress(
            block.last_scn if block.transactions else self.last_scn,
            complete,
            max(self.covered_scn, block.covered_scn, complete),
            block.last_commit_us if block.complete_scn else self.commit_us,
        )
