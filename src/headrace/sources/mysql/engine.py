"""Which twin makes columns of bytes: the one in C, or the one in Python where there was no compiler."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from headrace.errors import ConfigError
from headrace.sources.mysql.images import Layout, Run, scns_and_ords, walk
from headrace.sources.mysql.selected import SelectedRows
from headrace.sources.mysql.settings import ZeroDates
from headrace.sources.mysql.types import ColumnType
from headrace.sources.mysql.wire import Wire

try:
    from headrace.sources.mysql import built
except ImportError:
    _COMPILED = False  # there was no compiler when this was installed
else:
    _COMPILED = True

__all__ = ["ENGINES", "Engine", "Images", "Rows", "make_engine"]


class Images(Protocol):
    """Row images in which the same columns are present."""

    @property
    def count(self) -> int:
        """How many."""
        ...

    def clear(self) -> None:
        """Forget them all."""
        ...

    def column(self, place: int, zero_dates: ZeroDates) -> pa.Array:
        """Return one of the columns, once; raises ValueError when a value has no exact place in its type."""
        ...


class Rows(Images, Protocol):
    """Rows of a select."""

    @property
    def nbytes(self) -> int:
        """Bytes of all values, about."""
        ...

    def take(self, buffer: bytearray, at: int, end: int, most: int) -> tuple[int, int]:
        """Add the rows of whole packets; see `headrace.sources.mysql.selected`."""
        ...

    def add(self, payload: bytes) -> None:
        """Add the row of one packet; likewise."""
        ...


@dataclass(frozen=True, slots=True)
class Engine:
    """One of the twins.

    Attributes:
        images: makes a set of images of some types.
        walk: adds the images of an event; see `headrace.sources.mysql.images`.
        walk_alike: adds those of the events behind it that go on where it ended, None: they come one by one.
        walk_transactions: likewise those of whole transactions behind one that has ended.
        scns_and_ords: makes the columns that say where in the log images stand.
        rows: makes a set of rows of some types, whose cells lie as given.
    """

    images: Callable[[Sequence[ColumnType]], Images]
    walk: Callable[[bytes, int, int, Any, Any], int]
    walk_alike: Callable[..., tuple[int, int, int, int]] | None
    walk_transactions: Callable[..., tuple[int, list[tuple[bytes, int, int, int]]]] | None
    scns_and_ords: Callable[[Sequence[Run]], tuple[pa.Array, pa.Array]]
    rows: Callable[[Sequence[ColumnType], Sequence[Wire]], Rows]


_PYTHON = Engine(Layout, walk, None, None, scns_and_ords, SelectedRows)

ENGINES: dict[str, Engine] = (
    {
        "native": Engine(
            built.NativeImages,
            built.walk,
            built.walk_alike,
            built.walk_transactions,
            built.scns_and_ords,
            built.NativeRows,
        ),
        "python": _PYTHON,
    }
    if _COMPILED
    else {"python": _PYTHON}
)
"""The twins that this installation has, the best first."""


def make_engine() -> Engine:
    """Return the twin that ``HEADRACE_DECODER`` names (``native`` or ``python``), else the best that is there.

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
