"""Where a consumer stands in a stream, as it is asked for and kept."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Inside", "Place"]

_WHOLE = 2**31 - 1
_TEXT = re.compile(r"([0-9]+)(?::([0-9]+)(?:@(?=.)([a-z0-9]{1,8})?(?:\.([0-9]+))?)?)?")


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
    def log(self) -> str:
        """Identity of the change log whose ordinal it is; empty where that is not known."""
        return ""

    @property
    def changes(self) -> int | None:
        """Rows and truncates of the window up to here, as whoever stands here was told of them; None if not known."""
        return None

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
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(f"not a place in a stream: {text!r}")
        scn, order, log, changes = found.groups()
        if log is None and changes is None:
            return cls(int(scn), _WHOLE if order is None else int(order))
        return Inside(int(scn), int(order), log or "", None if changes is None else int(changes))


class Inside(Place):
    """A place inside a window that knows whose ordinal it has, and how much of the window lies before it.

    So another log of the source, whose ordinals are others, is gone on with at the same row. It equals, and compares
    with, any place of its SCN and ordinal.
    """

    _log: str
    _changes: int | None

    def __new__(cls, scn: int, ord: int, log: str = "", changes: int | None = None) -> Inside:
        """Return the place; see `Place`."""
        place = super().__new__(cls, scn, ord)
        place._log, place._changes = log, changes
        return place

    @property
    def log(self) -> str:
        """Identity of the change log whose ordinal it is; empty where that is not known."""
        return self._log

    @property
    def changes(self) -> int | None:
        """Rows and truncates of the window up to here, as whoever stands here was told of them; None if not known."""
        return self._changes

    def __str__(self) -> str:
        plain = super().__str__()
        known = self.log if self._changes is None else f"{self.log}.{self._changes}"
        return f"{plain}@{known}" if known and ":" in plain else plain
