"""What a walk through the change tables gives, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ANEW", "EMPTIED", "Begin", "ChangeRow", "End"]

EMPTIED = b"T"
"""Operation of a row that says that a table was emptied."""

ANEW = b"A"
"""Operation of a row that says that no row of a table is known any more, and that it is copied from here on."""


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
        op: ``I``, ``U``, ``D``, `EMPTIED`, `ANEW` or a mark.
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
