"""Patterns of names: ``*`` and ``?`` stand for any characters, and every other character for itself."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["matches", "may_begin"]


def matches(name: str, pattern: str) -> bool:
    """Return whether a pattern stands for a name."""
    return _glob(pattern).fullmatch(name) is not None


def may_begin(beginning: str, pattern: str) -> bool:
    """Return whether a pattern stands for any name that begins so."""
    return any(matches(beginning, pattern[:end]) for end in range(len(pattern) + 1))


@lru_cache(4096)
def _glob(pattern: str) -> re.Pattern[str]:
    return re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)
