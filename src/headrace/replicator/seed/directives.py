"""Directives of the design's table transformations, in the words of our section ``tables``.

``rename old new`` and ``mask column left|right character count``; a mask puts the character in the place of so many of
the column's characters, of all of them where there are fewer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Directive", "parse_directive"]

LONGEST_MASK = 10_000
"""Characters that a mask may cover."""


@dataclass(frozen=True, slots=True)
class Directive:
    """One transformation of one column.

    Attributes:
        setting: of ``tables``.
        column: of the source.
        value: the other name, or the expression.
    """

    setting: Literal["rename", "mask"]
    column: str
    value: str


def parse_directive(text: str) -> Directive | None:
    """Return what a directive asks for, None where it is none that is known."""
    match text.split():
        case ["rename", old, new]:
            return Directive("rename", old, new)
        case ["mask", column, ("left" | "right") as side, character, count] if (
            len(character) == 1 and count.isascii() and count.isdigit()
        ):
            if 1 <= int(count) <= LONGEST_MASK:
                return Directive("mask", column, _masked(column, side, character, int(count)))
    return None


def _masked(column: str, side: str, character: str, count: int) -> str:
    """Return a Spark SQL expression; null stays null."""
    text = f"CAST(`{column.replace('`', '``')}` AS STRING)"
    letter = {"'": "\\'", "\\": "\\\\"}.get(character, character)
    cover = f"repeat('{letter}', least({count}, length({text})))"
    if side == "left":
        return f"concat({cover}, substring({text}, {count + 1}))"
    return f"concat(substring({text}, 1, greatest(length({text}) - {count}, 0)), {cover})"
