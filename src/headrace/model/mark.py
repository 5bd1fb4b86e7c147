"""Watermarks: what is written into the source's log and read back from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Mark", "MarkKind"]


class MarkKind(Enum):
    """Which edge a mark stands for."""

    LOW = "low"
    """Written before the chunk's select."""
    HIGH = "high"
    """Written after it; its SCN becomes the SCN of the chunk's window."""
    END = "end"
    """Written when a table's last chunk and re-read list are out; its SCN is the completion's own."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One watermark.

    Attributes:
        kind: which edge.
        token: a fresh UUID for each window; both edges of a window carry the same.
        run_id: of the process that wrote it, so that orphans of a dead run are told from corruption.
    """

    kind: MarkKind
    token: str
    run_id: str

    def render(self) -> str:
        """Return the text form that travels through the source's log."""
        return f"{self.kind.value} {self.token} {self.run_id}"

    @classmethod
    def parse(cls, text: str) -> Mark:
        """Read what `render` gave.

        Raises:
            ValueError: when the text is not a mark.
        """
        kind, token, run_id = text.split(" ")
        if not token or not run_id:
            raise ValueError("a mark without token or run")
        return cls(MarkKind(kind), token, run_id)
