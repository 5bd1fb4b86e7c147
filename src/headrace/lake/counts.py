"""What a target has taken in, as numbers that are kept with its frontier.

In: what single batches held. Out: sums since the change log's first change, which a frontier manifest carries: a batch
that is applied twice is counted once, and a restart goes on from the numbers of the newest frontier. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "BOUNDS_S",
    "COUNTED",
    "NO_COUNTS",
    "NO_DELAYS",
    "NO_TOTALS",
    "Delays",
    "OnTime",
    "TableCounts",
    "Totals",
]

BOUNDS_S = (0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 20, 30, 60, 120, 300, 600, 1_800, 3_600, 14_400, 86_400)
"""Upper bounds of the classes of delays, seconds; one more class has everything above."""


@dataclass(frozen=True, slots=True)
class Delays:
    """Transactions by the time from their commit at the source to when the target showed them.

    Attributes:
        counts: transactions per class of `BOUNDS_S`, not summed up; empty classes at the end are left out.
        sum_s: of all delays.
    """

    counts: tuple[int, ...] = ()
    sum_s: float = 0.0

    @property
    def count(self) -> int:
        """Transactions in all classes."""
        return sum(self.counts)

    def plus(self, delays_s: npt.NDArray[np.float64]) -> Delays:
        """Return these and some more.

        Args:
            delays_s: one per transaction, seconds; not negative.
        """
        if not len(delays_s):
            return self
        # A delay that is just as long as a bound belongs below it, as Prometheus' `le` has it.
        places = np.searchsorted(BOUNDS_S, delays_s, side="left")
        found = np.bincount(places, minlength=len(self.counts))
        found[: len(self.counts)] += np.array(self.counts, np.int64)
        return Delays(tuple(found.tolist()), round(self.sum_s + float(delays_s.sum()), 3))

    def cumulative(self) -> list[tuple[float, int]]:
        """Return per bound how many transactions took at most that long; the last bound is infinite."""
        full = [*self.counts, *([0] * (len(BOUNDS_S) + 1 - len(self.counts)))]
        sums = np.cumsum(full).tolist()
        return list(zip((*BOUNDS_S, float("inf")), sums, strict=True))

    def to_json(self) -> dict[str, Any]:
        """Return plain values; `from_json` restores equal ones."""
        return {"counts": list(self.counts), "sum_s": self.sum_s}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Delays:
        """Restore what `to_json` gave."""
        return cls(tuple(int(count) for count in value["counts"]), float(value["sum_s"]))


NO_DELAYS = Delays()


@dataclass(frozen=True, slots=True)
class TableCounts:
    """What the target has of one table's history, as the source made it: before anything is folded.

    Attributes:
        scn: the log is counted up to here.
        inserts: rows that came to be.
        updates: rows that changed, those whose key did among them, each once.
        deletes: rows that ceased to be.
        truncates: how often all rows did.
        ddl: changes of the table's shape or name that were told of, and its first description.
        copied: rows that dumps read.
        rows: change rows of the log; an update with its old image is two.
        bytes: of these in the log.
        errors: attempts to bring the table forward that failed.
        delays: of transactions that changed the table.
    """

    scn: int = 0
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    truncates: int = 0
    ddl: int = 0
    copied: int = 0
    rows: int = 0
    bytes: int = 0
    errors: int = 0
    delays: Delays = NO_DELAYS

    @property
    def operations(self) -> int:
        """Inserts, updates, deletes and truncates."""
        return self.inserts + self.updates + self.deletes + self.truncates

    def plus(self, more: TableCounts) -> TableCounts:
        """Return these and what came behind them, of which the delays are taken as a whole."""
        sums = {name: getattr(self, name) + getattr(more, name) for name in COUNTED}
        return TableCounts(scn=more.scn, delays=more.delays, **sums)

    def failed(self, times: int) -> TableCounts:
        """Return these with some more failures."""
        return replace(self, errors=self.errors + times) if times else self

    def since(self, before: TableCounts) -> TableCounts:
        """Return what came behind some earlier ones; these where the earlier are larger, which began anew since."""
        parts = {name: getattr(self, name) - getattr(before, name) for name in COUNTED}
        return self if min(parts.values()) < 0 else replace(self, **parts)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, zeros left out; `from_json` restores equal ones."""
        found = {name: getattr(self, name) for name in ("scn", *COUNTED) if getattr(self, name)}
        return {**found, "delays": self.delays.to_json()} if self.delays.counts else found

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TableCounts:
        """Restore what `to_json` gave.

        Raises:
            TypeError: a field is unknown.
            ValueError: a value is no number.
        """
        delays = Delays.from_json(value["delays"]) if "delays" in value else NO_DELAYS
        numbers = {name: int(number) for name, number in value.items() if name != "delays"}
        return cls(delays=delays, **numbers)


COUNTED = tuple(f.name for f in fields(TableCounts) if f.name not in ("scn", "delays"))
"""The fields that are sums."""

NO_COUNTS = TableCounts()


@dataclass(frozen=True, slots=True)
class OnTime:
    """How many transactions became visible soon enough.

    Attributes:
        within_s: what soon enough is; another bound counts from nothing.
        seen: transactions that became visible.
        in_time: those of them that did within the bound.
    """

    within_s: float
    seen: int = 0
    in_time: int = 0

    def plus(self, delays_s: npt.NDArray[np.float64]) -> OnTime:
        """Return these and some more."""
        good = int(np.count_nonzero(delays_s <= self.within_s))
        return OnTime(self.within_s, self.seen + len(delays_s), self.in_time + good)


@dataclass(frozen=True, slots=True)
class Totals:
    """What is counted of all tables together.

    Attributes:
        delays: of all transactions of the source's log.
        on_time: None where nobody asked for a bound.
    """

    delays: Delays = NO_DELAYS
    on_time: OnTime | None = None

    def plus(self, delays_s: npt.NDArray[np.float64], within_s: float | None) -> Totals:
        """Return these and the transactions of one frontier.

        Args:
            delays_s: one per transaction.
            within_s: the bound that is asked for now, if any.
        """
        on_time = self.on_time
        if within_s is None:
            on_time = None
        elif on_time is None or on_time.within_s != within_s:
            on_time = OnTime(within_s)
        return Totals(self.delays.plus(delays_s), on_time.plus(delays_s) if on_time else None)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; `from_json` restores equal ones."""
        found: dict[str, Any] = {"delays": self.delays.to_json()}
        if self.on_time is not None:
            one = self.on_time
            found["on_time"] = {
                "within_s": one.within_s,
                "seen": one.seen,
                "in_time": one.in_time,
            }
        return found

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Totals:
        """Restore what `to_json` gave.

        Raises:
            KeyError: a field is missing.
            TypeError: one is unknown.
        """
        on_time = OnTime(**value["on_time"]) if "on_time" in value else None
        return cls(Delays.from_json(value["delays"]), on_time)


NO_TOTALS = Totals()
