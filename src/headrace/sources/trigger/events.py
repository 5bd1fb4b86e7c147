"""What a walk through the change tables gives, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Begin", "ChangeRow", "End"]


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins.

    Attributes:
        scn: its number.
        xid: what a chunk's snapshot knows it by.
        commit_us: when it was committed or a little before, microseconds since 1970 UTC.
    """

    scn: int
    xid: int
    commit_us: int


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One row of the change tables; cells are null as they are there.

    Attributes:
        relid: number by which the trigger knows its table.
        op: ``I``, ``U``, ``D``, ``T`` (truncate) or a mark.
        layout: what the table looked like, where that is told.
        before: the row before the change.
        after: the row after it.
    """

    relid: int
    op: bytes
    layout: bytes | None
    before: bytes | None
    after: bytes | None

    @property
    def nbytes(self) -> int:
        """Bytes of its images."""
        return len(self.before or b"") + len(self.after or b"")


@dataclass(frozen=True, slots=True)
class End:
    """The transaction that began last ends."""
