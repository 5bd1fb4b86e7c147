"""How it is said that nobody knows how far behind the source a replicator is, and which of its processes are gone."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["unheard_lines"]


def unheard_lines(unheard: str, gone: Iterable[str]) -> list[str]:
    """Return a line for each thing that is amiss.

    Args:
        unheard: why the change log may lack what the source did since, empty else.
        gone: processes that ended without a word.
    """
    lines = [f"{unheard}; what the source did since is not counted"] if unheard else []
    others = [name for name in gone if name != "capture"]
    return [*lines, *(f"{name} is not running: it ended without a word" for name in others)]
