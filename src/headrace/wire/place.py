"""Where a consumer stands in a stream, as it is asked for and kept."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Place"]

_WHOLE = 2**31 - 1


class Place(NamedTuple):
    """Everything up to and including this was processed.

    Attributes:
        scn: of the last transaction that was begun.
        ord: of the last change of it that was processed; the largest of 32 bits stands for all of it, -1 for none
            where a filter left nothing of its beginning. So places compare in the order of the stream.
    """

    scn: int
    ord: int = _WHOLE

    @property
    def whole(self) -> bool:
        """Whether the transaction was processed to its end."""
        return self.ord == _WHOLE

    @property
    def after_scn(self) -> int:
        """SCN of the last transaction of which nothing is needed any more; the one before ``scn`` inside a window."""
        return self.scn if self.whole else self.scn - 1

    def __str__(self) -> str:
        if self.whole or self.ord < 0:
            return str(self.after_scn)
        return f"{self.scn}:{self.ord}"

    @classmethod
    def parse(cls, text: str) -> Place:
        """Return the place that `str` of one wrote, or one that asks for the same.

        Raises:
            ValueError: the text is no place.
        """
        scn, colon, at = text.partition(":")
        if not (scn.isascii() and scn.isdecimal()) or (
            colon and not (at.isascii() and at.isdecimal())
        ):
            raise ValueError(f"not a place in a stream: {text!r}")
        return cls(int(scn), int(at) if colon else _WHOLE)
