"""How fast tables are read: rows of the next chunk, and when it may begin. Pure; times are handed in.

A chunk's size follows what the last chunk took, by whichever of these allows least:

- its select aims at a time (``chunk_s``), so that no read holds the source for long. When marks come back late, because
  the log has much to deliver, the aim grows with that wait, up to four times, so that the log does not starve chunks;
- the log stands still while a window's rows are written, so that is kept short where the log brings anything, and
  chunks do not starve the log;
- rows of one chunk are held in memory.

Between two chunks the source rests: as long as keeps selects within a stated share of one connection's time, and the
rows read within a rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.model.patterns import matches
from headrace.model.schema import TableId

__all__ = ["Chunked", "DumpPace", "Pacer", "next_rows", "ready_at"]

FIRST_ROWS = 5_000
"""Rows of a process' first chunk: few, for nothing is known yet."""
LEAST_ROWS = 100
MOST_ROWS = 250_000
CHUNK_BYTES = 32 << 20
"""Most bytes of rows that one chunk aims at."""
LEAST_BYTES = 192 << 10
"""Rows of a window that are written in hardly less time when there are fewer: most of it is its fixed part. With more,
a select keeps source and capture busy for so long that the log is seen to wait for it."""
EMIT_S = 0.001
"""How long the log may stand still while one window's rows are written."""
FULL_EMIT_S = 0.05
"""Likewise where the dump was given all the time there is: then it comes before the log's latency."""
QUIET_EMIT_S = 0.1
"""Likewise when the log brought no change during the last chunk, so that nobody is likely to wait."""
STRETCH = 4.0
"""How much longer than its aim a select may take on a source whose log is behind."""
CHANGE = 2.0
"""Most by which two chunks in a row differ, either way: one slow select says little."""
QUIET_GROWTH = 8.0
"""Most by which a chunk is larger than the last one when the log brought no change meanwhile. Each of the small chunks
that a dump begins with costs the way of its marks through the log, and nobody waits behind one that is too large."""


@dataclass(frozen=True, slots=True)
class DumpPace:
    """What a dump is held to.

    Attributes:
        chunk_rows: rows of each chunk; None lets the size follow the time.
        chunk_s: seconds that the select of such a chunk aims at.
        load: share of one connection's time that selects may take; 1 lets them follow each other at once.
        delay_s: least pause after each chunk.
        rows_per_s: most rows read per second, 0 for no limit.
        table_chunk_rows: rows of each chunk of the tables whose name matches a pattern, the first one that does;
            ``chunk_rows`` is for the others.
    """

    chunk_rows: int | None = None
    chunk_s: float = 0.25
    load: float = 1.0
    delay_s: float = 0.0
    rows_per_s: float = 0.0
    table_chunk_rows: Mapping[str, int] = field(default_factory=dict)

    def fixed_rows(self, table: TableId) -> int | None:
        """Return the rows of each chunk of a table, None where the size follows the time."""
        for pattern, rows in self.table_chunk_rows.items():
            if matches(str(table), pattern):
                return rows
        return self.chunk_rows


@dataclass(frozen=True, slots=True)
class Chunked:
    """What one chunk took; times in seconds of one clock.

    Attributes:
        asked: rows that it might have had.
        rows: rows that it had, ``nbytes`` their size.
        begun: when its select began, ``read`` when it ended.
        received: when its high mark came back.
        emitted: when its rows are written, as far as that can be known before it is done.
        quiet: whether the log brought no change between its marks.
    """

    asked: int
    rows: int
    nbytes: int
    begun: float
    read: float
    received: float
    emitted: float
    quiet: bool = False


def next_rows(pace: DumpPace, rows: int, last: Chunked) -> int:
    """Return the size of the next chunk.

    Args:
        pace: what it is held to.
        rows: the size until now.
        last: what the last chunk took; one that had fewer rows than asked for ended its table, and says nothing.
    """
    if last.rows >= last.asked and last.rows:
        aim_s = min(max(pace.chunk_s, last.received - last.read), STRETCH * pace.chunk_s)
        wanted = min(
            _per(last.rows, aim_s, last.read - last.begun),
            max(
                _per(last.rows, _emit_s(pace, last), last.emitted - last.received),
                _per(last.rows, LEAST_BYTES, last.nbytes),
            ),
            _per(last.rows, CHUNK_BYTES, last.nbytes),
        )
        growth = QUIET_GROWTH if last.quiet else CHANGE
        rows = int(min(max(wanted, rows / CHANGE), rows * growth))
    rows = min(max(rows, LEAST_ROWS), MOST_ROWS)
    # A rate is kept by pauses; chunks of more than a second's rows would make it come in jerks.
    return min(rows, max(1, int(pace.rows_per_s))) if pace.rows_per_s else rows


def _emit_s(pace: DumpPace, last: Chunked) -> float:
    """Return how long the log may stand still for the next chunk."""
    if last.quiet:
        return QUIET_EMIT_S
    return EMIT_S if pace.load < 1 else FULL_EMIT_S


def _per(rows: int, aim: float, took: float) -> float:
    """Return how many rows would take ``aim`` where ``rows`` took ``took``."""
    return rows * aim / took if took > 0 else float("inf")


def ready_at(pace: DumpPace, last: Chunked) -> float:
    """Return when the chunk after ``last`` may begin: unless people want a pause, while its rows are still written."""
    rested = last.read + (last.read - last.begun) * (1 / pace.load - 1)
    within_rate = last.begun + (last.rows / pace.rows_per_s if pace.rows_per_s else 0.0)
    paused = last.emitted + pace.delay_s if pace.delay_s else last.received
    return max(paused, rested, within_rate)


class Pacer:
    """Keeps the size of the next chunk and the time at which it may begin.

    ``pace`` may be replaced at any time; a rest that is under way is measured by the new one.
    """

    def __init__(self, pace: DumpPace) -> None:
        self.pace = pace
        self._rows = FIRST_ROWS
        self._last: Chunked | None = None
        self._emit_s_per_row = 0.0

    @property
    def rows(self) -> int:
        """Rows of the next chunk of a table without a size of its own."""
        return self.pace.chunk_rows or self._rows

    def rows_of(self, table: TableId) -> int:
        """Return the rows of the next chunk of a table."""
        return self.pace.fixed_rows(table) or self._rows

    @property
    def ready_at(self) -> float:
        """When the next chunk may begin."""
        return ready_at(self.pace, self._last) if self._last else 0.0

    def emit_s(self, rows: int) -> float:
        """Return what writing so many rows is likely to take, by those before."""
        return rows * self._emit_s_per_row

    def emitted(self, rows: int, seconds: float) -> None:
        """Take note of what the rows of a window took on their way into the log."""
        if rows:
            self._emit_s_per_row = seconds / rows

    def took(self, chunk: Chunked, table: TableId | None) -> None:
        """Take note of a chunk of a table; a read by key, which is of none, says nothing about a good size."""
        self._last = chunk
        if table is not None and self.pace.fixed_rows(table) is None:
            self._rows = next_rows(self.pace, self._rows, chunk)
