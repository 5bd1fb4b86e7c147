"""How many there are of a thing, in words for people."""

from __future__ import annotations

__all__ = ["be", "counted"]


def counted(number: int, thing: str) -> str:
    """Return how many there are of a thing, which is given as one: ``1 row``, ``2,000 rows``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def be(number: int) -> str:
    """Return the verb behind so many: ``is`` or ``are``."""
    return "is" if number == 1 else "are"
