"""How long and how often what failed is tried again: the section ``retry``, and the count that is held against it.

In: attempts that failed, one after the other. Out: how long to wait for the next one, and whether there is a next one.
Who looks after processes and who looks after replicators count in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from headrace.errors import HeadraceError, RetriesExhausted
from headrace.observe.status import ProcessStatus
from headrace.replicator.section import Section

__all__ = ["RestartPolicy", "RetryConfig", "Streak", "worked_s"]


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How soon and how often what died comes back.

    Attributes:
        first_s: wait before the first restart; doubles with each one in a row.
        longest_s: the wait never grows beyond this.
        healthy_s: what has worked for so long starts the count anew.
        crashes: deaths in a row that nobody foresaw, after which it is given up.
        for_s: how long errors that time may heal are tried, None without end.
    """

    first_s: float = 0.5
    longest_s: float = 30.0
    healthy_s: float = 60.0
    crashes: int = 8
    for_s: float | None = None

    def delay_s(self, deaths: int) -> float:
        """Return the wait before the restart after ``deaths`` deaths in a row."""
        return min(self.longest_s, self.first_s * 2.0 ** min(deaths - 1, 16))


class RetryConfig(Section):
    """How what time may heal is tried again.

    Attributes:
        for_s: how long, in a row; without end when absent.
        longest_s: longest pause between two attempts; the first is half a second, each is twice the one before.
        ends: what ends with the attempts of one table: that table alone, or the replicator.
    """

    for_s: Annotated[float | None, Field(gt=0, le=2_592_000)] = None
    longest_s: Annotated[float, Field(ge=0.5, le=3600)] = 30.0
    ends: Literal["table", "replicator"] = "table"

    def policy(self, general: RestartPolicy) -> RestartPolicy:
        """Return what holds for one replicator, given what holds for all."""
        longest = max(general.first_s, min(self.longest_s, general.longest_s))
        return replace(general, longest_s=longest, for_s=self.for_s)


@dataclass(slots=True)
class Streak:
    """Attempts that failed, in a row.

    Attributes:
        deaths: how many.
        crashes: those of them that nobody foresaw.
        since: when the first of them began, on the clock of who counts.
    """

    deaths: int = 0
    crashes: int = 0
    since: float = 0.0

    def died(self, began: float, worked: float, policy: RestartPolicy, *, foreseen: bool) -> None:
        """Count one more.

        Args:
            began: when the attempt did.
            worked: for how many seconds it did its work.
            policy: says when that was long enough to count anew.
            foreseen: whether it told the error that it ended with.
        """
        if worked >= policy.healthy_s:
            self.deaths = self.crashes = 0
        if not self.deaths:
            self.since = began + worked
        self.deaths += 1
        self.crashes += 0 if foreseen else 1

    def check(self, what: str, now: float, policy: RestartPolicy, last: HeadraceError) -> None:
        """Do nothing while there is another attempt.

        Raises:
            RetriesExhausted: nobody tries any more.
        """
        if policy.for_s is None or now - self.since < policy.for_s:
            return
        raise RetriesExhausted(
            f"{what}: failed {self.deaths} times within {now - self.since:.0f} s (retry.for_s is {policy.for_s:g}); "
            f"last: {last.message}",
            next_step=f"{last.next_step.rstrip('.') or 'see its log'}; then start it again.",
        )


def worked_s(said: ProcessStatus | None, lived_s: float) -> float:
    """Return for how long a process did its work: not while it loaded, nor while nothing of it got anywhere.

    Args:
        said: its last report, None where it gave none.
        lived_s: from its start to its end.
    """
    if said is None or not said.detail:
        return 0.0
    return max(0.0, lived_s - float(said.detail.get("stuck_s", 0.0)))
