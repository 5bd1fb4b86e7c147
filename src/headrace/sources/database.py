"""What a database is beside a source of changes, once a replicator stands on it: compared, assessed and watched over.

`headrace.sources.base.Source` is all that capture needs. Whoever proves a copy, estimates one or runs one to a goal
asks for more, and knows a database by this port alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.model.digest import DigestForm
from headrace.model.schema import TableId, TableSchema
from headrace.model.snapshot import Visibility
from headrace.sources.base import Source
from headrace.sources.description import Describes

__all__ = ["Compared", "Database", "Digests", "KeptLog", "LogWatch", "View"]

Digests = npt.NDArray[np.uint8]
"""Rows × 16 bytes."""


class View(Protocol):
    """One snapshot of some tables, whose rows the server renders and hashes; used from one thread.

    `headrace.lake.digest` describes the text of a row. No value comes to us, so no decoder of ours can hide its own
    fault.
    """

    @property
    def form(self) -> DigestForm:
        """How the server hashes."""
        ...

    @property
    def schemas(self) -> Mapping[TableId, TableSchema]:
        """The tables' shapes, as captured."""
        ...

    @property
    def snapshot_text(self) -> str:
        """The snapshot as the server writes it."""
        ...

    @property
    def snapshot(self) -> Visibility:
        """Which transactions the view sees."""
        ...

    @property
    def end_scn(self) -> int:
        """An SCN, no offset added, at or below which every transaction lies that the view sees."""
        ...

    def key_order(self, table: TableId) -> str:
        """Return what `headrace.sources.base.Bound.key_order` is of a table, empty for one without a key."""
        ...

    def narrow(self, table: TableId, schema: TableSchema) -> None:
        """Look at some columns of a table only, from here on; ``schema`` has these."""
        ...

    def left_out(self, table: TableId) -> tuple[str, ...]:
        """Return the columns of a table that the view does not look at."""
        ...

    def range_sums(self, table: TableId) -> Iterator[tuple[int, int, int]]:
        """Yield ``(range, rows, sum of the leading 60 bits of the row digests)`` of filled ranges.

        Raises:
            SourceError: the server does not let us read the table.
        """
        ...

    def row_digests(
        self, table: TableId, ranges: Sequence[int]
    ) -> Iterator[tuple[Digests, Digests]]:
        """Yield key and row digests of all rows in some key ranges; likewise."""
        ...

    def keys(self, table: TableId, digests: Sequence[bytes]) -> Iterator[tuple[str, ...]]:
        """Yield the keys, as the server renders them, of the rows whose key digest is one of some; likewise."""
        ...


class Compared(Protocol):
    """What can be compared with its copy."""

    def view(self, tables: Sequence[TableId]) -> AbstractContextManager[View]:
        """Return a snapshot of tables, taken when it is entered.

        Raises:
            SourceError: on entering: a table is not there, or may not be read.
        """
        ...

    def render_keys(self, schema: TableSchema, rows: pa.RecordBatch) -> list[tuple[str, ...]]:
        """Return each row's key as the database would render it; asks nobody."""
        ...


class KeptLog(Protocol):
    """How much log the server keeps that we have not read, at one moment."""

    @property
    def status(self) -> str:
        """A word that changes when the danger does."""
        ...

    @property
    def warning(self) -> str:
        """Why a person should look, empty when there is no reason."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a status file; ``text`` and ``warning`` among them."""
        ...


class LogWatch(Protocol):
    """Looks at the log that is kept, over a connection of its own; used from one thread."""

    def look(self, now_s: float) -> KeptLog:
        """Look once.

        Args:
            now_s: monotonic seconds.

        Raises:
            HeadraceError: the server cannot be asked; ask again later.
        """
        ...

    def close(self) -> None:
        """Release the connection."""
        ...


class Database(Source, Describes, Compared, Protocol):
    """A source that a replicator can stand on."""

    def end_scn(self) -> int:
        """Return an SCN, no offset added, at or below which everything lies that is committed now."""
        ...

    def scn_of(self, position: str) -> int:
        """Return an SCN, no offset added: what a snapshot at a position has seen lies at or below it, all else above.

        Args:
            position: as the database writes it.

        Raises:
            ValueError: the text is no position.
        """
        ...

    def log_watch(self) -> LogWatch:
        """Return what looks at the log that the server keeps for us."""
        ...
