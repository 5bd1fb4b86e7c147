"""Queries that take long at the source: counted by their kind, and said.

The source's work is its own: a chunk that is sorted, a table of wide rows, a catalog that somebody has locked. Whoever
looks after the source should see what we cost there before the source's users do.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType

__all__ = ["SlowQueries", "SlowSeen"]

_LOG = logging.getLogger(__name__)

_NEXT_STEP = {
    "chunk": "see whether the source is busy, and headrace preflight for how it reads the table; smaller chunks "
    "(dump.chunk_rows) hold it for less time each",
    "keys": "see whether the source is busy, and headrace preflight for how it reads the table",
    "table": "none: a table without a key is read whole; if that is too much, give it one or leave it out "
    "(source.exclude)",
    "bounds": "see whether the source is busy, and headrace preflight for how it reads the table",
    "catalog": "see what holds the source's catalog; migrations under way do",
}


@dataclass(frozen=True, slots=True)
class SlowSeen:
    """What a capture has seen since it started.

    Attributes:
        counts: slow queries by kind: ``chunk``, ``keys``, ``table``, ``bounds`` or ``catalog``.
        slowest_s: how long the slowest one took.
        slowest: what that was.
    """

    counts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    slowest_s: float = 0.0
    slowest: str = ""


class SlowQueries:
    """Watches the reading side. Used from its thread; `seen` from any.

    Args:
        source: its name.
        limit_s: what takes longer is slow.
        clock: monotonic seconds.

    Attributes:
        seen: so far; replaced as a whole.
    """

    def __init__(
        self,
        source: str = "",
        limit_s: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._limit_s = limit_s
        self._clock = clock
        self.seen = SlowSeen()

    @contextmanager
    def watched(self, kind: str, of: object) -> Iterator[None]:
        """Watch the query of the block, whether it fails or not.

        Args:
            kind: as `SlowSeen` has it.
            of: which table, or what else.
        """
        begun = self._clock()
        try:
            yield
        finally:
            took_s = self._clock() - begun
            if took_s > self._limit_s:
                self._slow(kind, of, took_s)

    def _slow(self, kind: str, of: object, took_s: float) -> None:
        seen = self.seen
        counts = {**seen.counts, kind: seen.counts.get(kind, 0) + 1}
        is_slowest = took_s > seen.slowest_s
        self.seen = SlowSeen(
            MappingProxyType(counts),
            took_s if is_slowest else seen.slowest_s,
            f"{kind} of {of}" if is_slowest else seen.slowest,
        )
        _LOG.warning(
            "%s: a query at the source took %.1f s (%s of %s), more than source.slow_query_s. Next step: %s.",
            self._source,
            took_s,
            kind,
            of,
            _NEXT_STEP[kind],
        )
