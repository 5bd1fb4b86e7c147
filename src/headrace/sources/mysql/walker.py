"""Which walk through row images is used: the one in C, or its twin in Python where there was no compiler."""

from __future__ import annotations

import os
from collections.abc import Callable

from headrace.errors import ConfigError
from headrace.sources.mysql.images import Layout, walk

try:
    from headrace.sources.mysql._native import walk as native_walk
except ImportError:
    _COMPILED = False  # there was no compiler when this was installed
else:
    _COMPILED = True

__all__ = ["ENGINES", "Walk", "make_walk"]

Walk = Callable[[bytes, int, int, int, Layout, Layout], int]

ENGINES: dict[str, Walk] = (
    {"native": native_walk, "python": walk} if _COMPILED else {"python": walk}
)
"""The walks that this installation has, the best first."""


def make_walk() -> Walk:
    """Return the walk that ``HEADRACE_DECODER`` names (``native`` or ``python``), else the best that is there.

    Raises:
        ConfigError: the one asked for is not there.
    """
    wanted = os.environ.get("HEADRACE_DECODER", "") or next(iter(ENGINES))
    if wanted not in ENGINES:
        raise ConfigError(
            f"There is no decoder {wanted!r} in this installation, which has {' and '.join(ENGINES)}.",
            next_step="install a C compiler and install headrace again, or unset HEADRACE_DECODER.",
        )
    return ENGINES[wanted]
