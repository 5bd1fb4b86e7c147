"""Operations over time: what became visible in each minute of the last day or more, and each hour of a longer time.

In: frontiers as they come, in the process that looks after the others. Out: counts per minute or hour and table, for
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
from headrace.replicator.known_tables import refuse_unknown
from headrace.replicator.paths import StatePaths
from headrace.state.minutes import ALL, MINUTE_S, MinuteStore

__all__ = [
    "Active",
    "MinuteKeeper",
    "activity",
    "ends_of",
    "latest",
    "sums_of",
]

_SAVE_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class Active:
    """What became visible of one table in one minute, or hour.

    Attributes:
        at: minutes, or hours, since 1970 UTC.
        table: ``schema.name``.
        counts: of that span alone, without delays.
        span_s: how long it is.
    """

    at: int
    table: str
    counts: TableCounts
    span_s: int = MINUTE_S

    @property
    def operations(self) -> int:
        """What people did at the source; rows that a dump read are none."""
        counts = self.counts
        return counts.inserts + counts.updates + counts.deletes + counts.truncates

    def to_json(self) -> dict[str, Any]:
        """Return plain values, with changes and bytes per second."""
        counts = self.counts
        return {
            "minute_s" if self.span_s == MINUTE_S else "hour_s": self.at * self.span_s,
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
            "changes_per_s": round(counts.rows / self.span_s, 3),
            "bytes_per_s": round(counts.bytes / self.span_s, 3),
        }


def _at(frontier: Manifest, span_s: int) -> int:
    """Return the minute, or hour, in which a frontier was published."""
    return frontier.written_us // (span_s * 1_000_000)


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
    rows: Iterable[tuple[int, str, Any]],
    newest: Manifest | None,
    from_at: int,
    span_s: int = MINUTE_S,
) -> list[Active]:
    """Return what became visible per minute and table, oldest minute first; minutes without anything are left out.

    Args:
        rows: minute, table and sums, as `MinuteStore.read` gives them.
        newest: the newest frontier, which may be ahead of the rows.
        from_at: the first minute to tell of.
        span_s: of the rows: of minutes, or of hours, which are then told of instead.
    """
    before: dict[str, TableCounts] = {}
    found: dict[tuple[int, str], TableCounts] = {}
    newer = (
        [(_at(newest, span_s), name, of) for name, of in sums_of(newest).items()] if newest else []
    )
    for at, table, sums in [*rows, *newer]:
        if table == ALL:
            continue
        now = TableCounts.from_json(sums)
        more = now.since(before.get(table, NO_COUNTS))
        before[table] = now
        if at >= from_at and any(more.to_json().keys() - {"scn"}):
            earlier = found.get((at, table), NO_COUNTS)
            found[at, table] = earlier.plus(more)
    return [Active(at, table, counts, span_s) for (at, table), counts in sorted(found.items())]


def latest(
    config: Config, now_s: float, spans: int, table: str | None, span_s: int = MINUTE_S
) -> list[Active]:
    """Return what became visible in a replicator's tables of late; nothing before its first run.

    Args:
        config: of the replicator.
        now_s: seconds since 1970 UTC.
        spans: how many minutes, or hours, the one of now among them.
        table: only this one, None for all.
        span_s: of minutes, or of hours.

    Raises:
        StateError: the database of minutes does not read.
        UnknownTable: the replicator has no such table, and had none in that time.
    """
    found = _latest(config, now_s, spans, table, span_s)
    told = [one for one in found if table in (None, one.table)]
    if table is not None and not told:
        refuse_unknown(config, table)
    return told


def _latest(
    config: Config, now_s: float, spans: int, table: str | None, span_s: int
) -> list[Active]:
    path = StatePaths.of(config).activity
    if not path.exists():
        return []
    from_at = int(now_s) // span_s - spans + 1
    with contextlib.closing(MinuteStore(path)) as store:
        rows = store.read(from_at, table, span_s)
    newest = FrontierStore(config.lake, config.name).latest()
    return activity(rows, newest, from_at, span_s)


class MinuteKeeper:
    """Keeps the sums of frontiers as of the ends of their minutes and hours.

    A frontier that comes twice, or a process that dies, changes nothing but the minute in which a change is shown.

    Args:
        path: of the database.
        frontier: the newest one now; what it holds is no news of this minute.
        kept_s: seconds for which minutes, and hours, are kept.
    """

    def __init__(self, path: Path, frontier: Manifest | None, kept_s: Mapping[int, float]) -> None:
        self._store = MinuteStore(path)
        self._kept = {span_s: int(seconds) // span_s + 2 for span_s, seconds in kept_s.items()}
        self._held: Manifest | None = frontier
        self._saved: Mapping[str, Any] = {}
        self._saved_at = time.monotonic()
        for span_s in self._kept:
            if frontier is not None and not self._store.read(2**40, span_s=span_s):
                # Of what came before there was this database nobody knows when.
                self._write(_at(frontier, span_s) - 1, sums_of(frontier), span_s)

    def take(self, frontier: Manifest | None) -> None:
        """Take a frontier; it is written now and then, and when its minute is over.

        Raises:
            StateError: the database cannot be used; nothing is lost, the next call tries again.
        """
        if frontier is None or frontier == self._held:
            return
        held = self._held
        if held is not None and _at(held, MINUTE_S) != _at(frontier, MINUTE_S):
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
        changed = {name: of for name, of in sums.items() if self._saved.get(name) != of}
        for span_s in self._kept:
            self._write(_at(frontier, span_s), changed, span_s)
        self._saved, self._saved_at = {**self._saved, **sums}, time.monotonic()

    def _write(self, at: int, sums: dict[str, dict[str, Any]], span_s: int) -> None:
        self._store.put(at, sums, at - self._kept[span_s], span_s)


def _plain(counts: TableCounts) -> TableCounts:
    return replace(counts, delays=NO_DELAYS)
