"""Tables whose operations fell suddenly: what became visible of late, against what did before.

In: operations per table and minute. Out: the tables of which far fewer became visible than usual, until they are back.
`drops` is pure; `DropWatch` keeps what it finds with the minutes, so that a restart forgets none and everybody sees it.

Usual is the median of the stretches before: a load that comes once an hour is none of a table's usual, and one large
load among many does not make those behind it look few.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from headrace.lake.frontier import Manifest
from headrace.replicator.minutes import Active, activity
from headrace.replicator.observe_config import ActivityConfig
from headrace.state.minutes import MINUTE_S, MinuteStore

__all__ = ["Drop", "DropRule", "DropWatch", "drops", "noted", "rule_of"]

_NOTE = "drops"


@dataclass(frozen=True, slots=True)
class DropRule:
    """What a sudden drop is.

    Attributes:
        to: share of the usual operations below which a table's are.
        over_s: of the newest so many seconds, whole minutes.
        against: number of stretches as long, before those, whose median is the usual.
        least: a table with fewer usual ones is not watched.
    """

    to: float
    over_s: int
    against: int
    least: int

    @property
    def minutes(self) -> int:
        """Length of a stretch."""
        return self.over_s // MINUTE_S

    @property
    def kept_s(self) -> int:
        """How far back it looks."""
        return self.over_s * (self.against + 1)


@dataclass(frozen=True, slots=True)
class Drop:
    """One table.

    Attributes:
        table: ``schema.name``.
        usual: operations of a stretch before it.
        seen: operations of the newest stretch.
        over_s: length of a stretch.
        since_s: where the first stretch with fewer began, seconds since 1970 UTC.
    """

    table: str
    usual: float
    seen: int
    over_s: int
    since_s: int

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def drops(
    found: Iterable[Active],
    now_s: float,
    rule: DropRule,
    tables: Collection[str],
    held: Mapping[str, Drop],
    watched_from_s: float,
) -> dict[str, Drop]:
    """Return the tables whose operations have fallen, by name.

    Args:
        found: operations per minute, at least those of `DropRule.kept_s`.
        now_s: seconds since 1970 UTC; the minute that it is in is not over, and does not count.
        rule: what a drop is.
        tables: that are there.
        held: what had fallen when somebody looked last; it has until its operations are as many as they were.
        watched_from_s: a stretch that begins before it, when nobody brought changes forward, tells nothing.
    """
    end = int(now_s) // MINUTE_S
    sums: Counter[tuple[str, int]] = Counter()
    for one in found:
        if one.at < end:
            sums[one.table, (end - 1 - one.at) // rule.minutes] += one.operations
    begin_s = (end - rule.minutes) * MINUTE_S
    fallen = {}
    for table in sorted(tables):
        seen = sums[table, 0]
        if (before := held.get(table)) is not None:
            drop = replace(before, seen=seen)
        elif begin_s >= watched_from_s:
            usual = median(sums[table, n] for n in range(1, rule.against + 1))
            drop = Drop(table, float(usual), seen, rule.over_s, begin_s)
        else:
            continue
        if drop.usual >= rule.least and seen < rule.to * drop.usual:
            fallen[table] = drop
    return fallen


def rule_of(config: ActivityConfig) -> DropRule | None:
    """Return what a configuration calls a drop; None where nobody watches."""
    drop = config.drop
    return DropRule(drop.to, drop.over_s, drop.against, drop.least) if drop else None


def noted(store: MinuteStore) -> dict[str, Drop]:
    """Return what a watch found last.

    Raises:
        StateError: the database cannot be used.
    """
    return {name: Drop(**of) for name, of in json.loads(store.get(_NOTE) or "{}").items()}


class DropWatch:
    """Looks once a minute.

    Args:
        path: of the database of minutes.
        rule: what a drop is.
        now_s: seconds since 1970 UTC.

    Raises:
        StateError: of every method: the database cannot be used; the next call tries again.
    """

    def __init__(self, path: Path, rule: DropRule, now_s: float) -> None:
        self._store = MinuteStore(path)
        self._rule = rule
        self._from_s = now_s
        self._looked = int(now_s) // MINUTE_S
        self._held = noted(self._store)

    def take(
        self, now_s: float, newest: Manifest | None, tables: Collection[str], *, paused: bool
    ) -> Mapping[str, Drop]:
        """Return what has fallen.

        Args:
            now_s: seconds since 1970 UTC.
            newest: the newest frontier, which may be ahead of the minutes.
            tables: that are there.
            paused: whether people hold changes back: nothing of that time is a drop.
        """
        if paused:
            self._from_s = now_s
        elif self._looked != int(now_s) // MINUTE_S:
            from_at = int(now_s - self._rule.kept_s) // MINUTE_S
            found = activity(self._store.read(from_at), newest, from_at)
            fallen = drops(found, now_s, self._rule, tables, self._held, self._from_s)
            if fallen != self._held:
                told = {name: drop.to_json() for name, drop in fallen.items()}
                self._store.set(_NOTE, json.dumps(told))
            self._held, self._looked = fallen, int(now_s) // MINUTE_S
        return self._held

    def close(self) -> None:
        """Release the database."""
        self._store.close()
