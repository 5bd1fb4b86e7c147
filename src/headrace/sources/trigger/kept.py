"""How much the change tables keep, how far we are behind, and what the reading of changes has cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from headrace.plural import counted

__all__ = ["KeptChanges"]

_WARN_BYTES = 10 << 30


@dataclass(frozen=True, slots=True)
class KeptChanges:
    """The change tables, seen from our place.

    Attributes:
        status: ``kept``; ``missing`` without a place.
        retained_bytes: of the change tables and their indexes.
        unread_transactions: behind our place, as far as the clock has come.
        kept_transactions: that a reader could still go back over.
        fetch_queries: queries of changes since the pipeline began.
        fetch_rows: rows that came by them.
        fetch_seconds: how long they took.
        fetch_slow: how many of them took longer than ``source.slow_query_s``.
    """

    status: str
    retained_bytes: int = 0
    unread_transactions: int = 0
    kept_transactions: int = 0
    fetch_queries: int = 0
    fetch_rows: int = 0
    fetch_seconds: float = 0.0
    fetch_slow: int = 0

    @classmethod
    def of(cls, rows: Sequence[Sequence[str | None]]) -> Self:
        """Return what a server says of our place.

        Args:
            rows: none without a place; else one of unread and kept transactions, bytes, and queries, their rows,
                seconds and slow ones, each as text.
        """
        if not rows:
            return cls("missing")
        unread, kept, size, queries, fetched, seconds, slow = rows[0]
        return cls(
            "kept",
            int(size or 0),
            int(unread or 0),
            int(kept or 0),
            int(queries or 0),
            int(fetched or 0),
            float(seconds or 0),
            int(slow or 0),
        )

    @property
    def warning(self) -> str:
        """Why a person should look, empty when there is no reason."""
        if self.status == "missing":
            return "the pipeline has no place in the change tables: RESYNC NEEDED"
        return str(self) if self.retained_bytes >= _WARN_BYTES else ""

    def __str__(self) -> str:
        return (
            f"the change tables have {counted(self.retained_bytes, 'byte')} and "
            f"{counted(self.kept_transactions, 'transaction')}, {self.unread_transactions:,} of them not read"
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a status file."""
        return {**asdict(self), "warning": self.warning, "text": str(self)}
