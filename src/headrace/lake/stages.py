"""How long the stages of a batch take, for whoever wants to know.

A kernel names its stages, as blocks or as whole functions; who calls it collects the seconds, or nobody does::

    with timed() as seconds:
        commit_batch(...)
    print(seconds["probe"], seconds["write"])
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["stage", "timed"]

_spent: ContextVar[defaultdict[str, float] | None] = ContextVar("spent", default=None)


@contextmanager
def timed() -> Iterator[Mapping[str, float]]:
    """Collect the seconds of each stage that the block passes; a stage it does not pass took none."""
    found: defaultdict[str, float] = defaultdict(float)
    token = _spent.set(found)
    try:
        yield found
    finally:
        _spent.reset(token)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Count the block's time towards a stage."""
    spent, begun = _spent.get(), time.monotonic()
    try:
        yield
    finally:
        if spent is not None:
            spent[name] += time.monotonic() - begun
