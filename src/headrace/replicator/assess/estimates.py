"""What a first copy will take, and how fast the log grows: from the catalog's statistics and a short look at the log.

In: descriptions of tables, and how many bytes of log the server has written, asked twice. Out: numbers, None where
nobody knows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headrace.model.schema import TableId
from headrace.sources.description import TableDescription

__all__ = [
    "FIRST_COPY_ROWS_PER_S",
    "Estimates",
    "LogSample",
    "TableEstimate",
    "estimated",
    "sample_log",
]

FIRST_COPY_ROWS_PER_S = 50_000.0
"""Rows of the demo's shop that reach Delta tables per second while it is busy, on two cores with the defaults.

Source: benchmarks/results/freshness.json, ``copied_rows_per_s``; other machines, wider rows and other loads differ.
"""

SAMPLE_S = 1.0
"""How long the log is looked at where nobody says otherwise."""

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class LogSample:
    """How fast a server's log grew while it was looked at.

    Attributes:
        seconds: that the look took.
        bytes: by which the log grew; of all databases of the server together.
    """

    seconds: float
    bytes: int

    @property
    def bytes_per_hour(self) -> int:
        """The same, if it goes on like that."""
        return round(self.bytes / self.seconds * _HOUR_S)


@dataclass(frozen=True, slots=True)
class TableEstimate:
    """One table.

    Attributes:
        table: which.
        rows: that it has, None where the catalog has never counted it.
        bytes: that it takes at the source, likewise.
        first_copy_s: seconds of its first copy, likewise.
    """

    table: TableId
    rows: int | None
    bytes: int | None
    first_copy_s: float | None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "schema": self.table.schema,
            "table": self.table.name,
            "rows": self.rows,
            "bytes": self.bytes,
            "firstCopySeconds": self.first_copy_s,
        }


@dataclass(frozen=True, slots=True)
class Estimates:
    """All tables of a replicator.

    Attributes:
        tables: each of them.
        rows_per_s: at which a first copy is taken to go on.
        log: how fast the log grew, None where nobody looked.
    """

    tables: tuple[TableEstimate, ...]
    rows_per_s: float
    log: LogSample | None = None

    @property
    def rows(self) -> int:
        """Of the tables that the catalog has counted."""
        return sum(table.rows or 0 for table in self.tables)

    @property
    def bytes(self) -> int:
        """Likewise."""
        return sum(table.bytes or 0 for table in self.tables)

    @property
    def first_copy_s(self) -> float:
        """Likewise: tables are copied one after another."""
        return round(sum(table.first_copy_s or 0.0 for table in self.tables), 1)

    @property
    def unknown(self) -> tuple[TableId, ...]:
        """Tables that the catalog has never counted."""
        return tuple(table.table for table in self.tables if table.rows is None)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "rows": self.rows,
            "bytes": self.bytes,
            "firstCopySeconds": self.first_copy_s,
            "rowsPerSecond": self.rows_per_s,
            "logBytesPerHour": self.log.bytes_per_hour if self.log else None,
            "logSampleSeconds": round(self.log.seconds, 3) if self.log else None,
            "tablesUnknown": [str(table) for table in self.unknown],
            "tables": [table.to_json() for table in self.tables],
        }


def estimated(
    tables: Iterable[TableDescription], limit_rows_per_s: float = 0.0, log: LogSample | None = None
) -> Estimates:
    """Return what the first copies of tables will take.

    Args:
        tables: as the source describes them.
        limit_rows_per_s: most rows that may be read per second, 0 for no limit.
        log: how fast the log grew.
    """
    rate = min(FIRST_COPY_ROWS_PER_S, limit_rows_per_s or FIRST_COPY_ROWS_PER_S)
    found = (
        TableEstimate(
            table.table,
            table.rows,
            table.bytes,
            None if table.rows is None else round(table.rows / rate, 1),
        )
        for table in tables
    )
    return Estimates(tuple(found), rate, log)


def sample_log(
    written_bytes: Callable[[], int],
    seconds: float = SAMPLE_S,
    *,
    wait: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> LogSample | None:
    """Look at a log twice.

    Args:
        written_bytes: how many bytes the server has written in all.
        seconds: between the two looks; 0 for none.
        wait: lets time pass.
        clock: seconds since any moment.

    Returns:
        how it grew; None where nobody was to look.
    """
    if seconds <= 0:
        return None
    begun, before = clock(), written_bytes()
    wait(seconds)
    after, passed = written_bytes(), clock() - begun
    return LogSample(passed, max(0, after - before))
