"""Operations over time: what became visible in each minute of the last day or more.

In: frontiers as they come, in the process that looks after the others. Out: counts per minute and table, for
``headrace activity``, and the sums that the objective is measured with.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.errors import StateError
from headrace.lake.counts import NO_COUNTS, NO_DELAYS, OnTime, TableCounts
from headrace.lake.frontier import FrontierStore, Manifest
from headrace.replicator.config import Config
from headrace.replicator.objective import MINUTE_S
from headrace.replicator.paths import StatePaths
from headrace.state.minutes import ALL, MinuteStore

__all__ = [
    "KEPT_MINUTES",
    "Active",
    "MinuteKeeper",
    "activity",
    "ends_of",
    "latest",
    "minute_of",
    "sums_of",
]

KEPT_MINUTES = 24 * 60
"""How long minutes are kept at least."""
_SAVE_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class Active:
    """What became visible of one table in one minute.

    Attributes:
        minute: since 1970 UTC.
        table: ``schema.name``.
        counts: of that minute alone, without delays.
    """

    minute: int
    table: str
    counts: TableCounts

    def to_json(self) -> dict[str, Any]:
        """Return plain values, with changes and bytes per second."""
        counts = self.counts
        return {
            "minute_s": self.minute * MINUTE_S,
            "table": self.table,
            "inserts": counts.inserts,
            "updates": counts.updates,
            "deletes": counts.deletes,
            "truncates": counts.truncates,
            "ddl": counts.ddl,
            "copied": counts.copied,
            "changes": counts.rows,
            "bytes": counts.bytes,
            "errors": counts.errors,
            "changes_per_s": round(counts.rows / MINUTE_S, 3),
            "bytes_per_s": round(counts.bytes / MINUTE_S, 3),
        }


def minute_of(frontier: Manifest) -> int:
    """Return the minute in which a frontier was published."""
    return frontier.written_us // (MINUTE_S * 1_000_000)


def sums_of(frontier: Manifest) -> dict[str, dict[str, Any]]:
    """Return what is kept of a frontier, by table, and for all together."""
    sums = {name: _plain(entry.counts).to_json() for name, entry in frontier.tables.items()}
    return {
        **sums,
        ALL: {} if frontier.totals.on_time is None else frontier.totals.to_json()["on_time"],
    }


def ends_of(rows: Iterable[tuple[int, str, Any]]) -> list[tuple[int, OnTime]]:
    """Return the sums that an objective is measured with, of the minutes that have some."""
    return [(minute, OnTime(**sums)) for minute, table, sums in rows if table == ALL and sums]


def activity(
    rows: Iterable[tuple[int, str, Any]], newest: Manifest | None, from_minute: int
) -> list[Active]:
    """Return what became visible per minute and table, oldest minute first; minutes without anything are left out.

    Args:
        rows: minute, table and sums, as `MinuteStore.read` gives them.
        newest: the newest frontier, which may be ahead of the rows.
        from_minute: the first to tell of.
    """
    before: dict[str, TableCounts] = {}
    found: dict[tuple[int, str], TableCounts] = {}
    newer = (
        [(minute_of(newest), name, of) for name, of in sums_of(newest).items()] if newest else []
    )
    for minute, table, sums in [*rows, *newer]:
        if table == ALL:
            continue
        now = TableCounts.from_json(sums)
        more = now.since(before.get(table, NO_COUNTS))
        before[table] = now
        if minute >= from_minute and any(more.to_json().keys() - {"scn"}):
            earlier = found.get((minute, table), NO_COUNTS)
            found[minute, table] = earlier.plus(more)
    return [Active(minute, table, counts) for (minute, table), counts in sorted(found.items())]


def latest(config: Config, from_minute: int) -> list[Active]:
    """Return what became visible in a replicator's tables from a minute on; nothing before its first run.

    Raises:
        StateError: the database of minutes does not read.
    """
    path = StatePaths.of(config).activity
    if not path.exists():
        return []
    with contextlib.closing(MinuteStore(path)) as store:
        rows = store.read(from_minute)
    return activity(rows, FrontierStore(config.lake, config.name).latest(), from_minute)


class MinuteKeeper:
    """Keeps the sums of frontiers as of the ends of their minutes.

    A frontier that comes twice, or a process that dies, changes nothing but the minute in which a change is shown.

    Args:
        path: of the database.
        frontier: the newest one now; what it holds is no news of this minute.
        over_s: seconds for which minutes are kept, a day at least.
    """

    def __init__(self, path: Path, frontier: Manifest | None, over_s: float = 0.0) -> None:
        self._store = MinuteStore(path)
        self._kept = max(KEPT_MINUTES, int(over_s) // MINUTE_S) + 2
        self._held: Manifest | None = frontier
        self._saved: Mapping[str, Any] = {}
        self._saved_at = time.monotonic()
        if frontier is not None and not self._store.read(2**40):
            # Of what came before there was this database nobody knows when.
            self._write(minute_of(frontier) - 1, sums_of(frontier))

    def take(self, frontier: Manifest | None) -> None:
        """Take a frontier; it is written now and then, and when its minute is over.

        Raises:
            StateError: the database cannot be used; nothing is lost, the next call tries again.
        """
        if frontier is None or frontier == self._held:
            return
        held = self._held
        if held is not None and minute_of(held) != minute_of(frontier):
            self._save(held)
        self._held = frontier
        if time.monotonic() - self._saved_at >= _SAVE_EVERY_S:
            self._save(frontier)

    def close(self) -> None:
        """Write what is held, and release the database."""
        with contextlib.suppress(StateError):
            if self._held is not None:
                self._save(self._held)
        self._store.close()

    def _save(self, frontier: Manifest) -> None:
        sums = sums_of(frontier)
        # A table at rest stands with what was written of it before.
        self._write(
            minute_of(frontier),
            {name: of for name, of in sums.items() if self._saved.get(name) != of},
        )

    def _write(self, minute: int, sums: dict[str, dict[str, Any]]) -> None:
        self._store.put(minute, sums, minute - self._kept)
        self._saved, self._saved_at = {**self._saved, **sums}, time.monotonic()


def _plain(counts: TableCounts) -> TableCounts:
    return replace(counts, delays=NO_DELAYS)
