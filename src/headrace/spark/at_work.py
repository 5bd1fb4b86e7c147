"""A table while apply runs: how far it is, and what one batch asks of it."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headrace.errors import (
    ChangeLogError,
    HeadraceError,
    RetriesExhausted,
    Retry,
    TargetBehind,
    TargetError,
)
from headrace.lake.copies import Copy
from headrace.lake.counts import TableCounts
from headrace.lake.frontier import TableEntry, TableMode
from headrace.model.block import SystemEvent, SystemKind
from headrace.model.schema import TableId
from headrace.plural import counted
from headrace.spark.ledger import Position
from headrace.spark.notes import AWAITS_ADOPTION, DEAD_LETTERS, TABLE_LEFT, TARGET_CHANGED
from headrace.spark.plan import Step
from headrace.spark.status import BatchCost, MaintenanceCost, TableStatus
from headrace.spark.targets.base import TargetState

__all__ = ["Patience", "TableAtWork", "Work", "all_fail", "end_if_hopeless", "left_because"]

_LOG = logging.getLogger(__name__)
_RETRY_FROM_S = 1.0
_GIVE_UP_AFTER = 5
"""Attempts after which a job ends when no table of it can be applied any more, and a table that fails beside others is
said to need a person."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a table that fails is tried again.

    Attributes:
        for_s: from its first failure on, None without end.
        longest_s: longest pause between two attempts.
        alone: whether a table that is given up ends alone; otherwise the job ends with it.
    """

    for_s: float | None = None
    longest_s: float = 60.0
    alone: bool = True


@dataclass(slots=True)
class TableAtWork:
    """One table while the job runs.

    Attributes:
        position: its rows are those of this SCN.
        complete_scn: since when it has all rows, None while it is copied.
        version: of the target table, negative when there is none.
        schema_id: table version that the target's columns have.
        rows: change rows that this process committed, each once.
        error: what stands in its way; ``attempts`` have failed, the first at ``failed_at`` (monotonic seconds), the
            next is due at ``retry_at``: never, when it was given up.
        left: why it left the frontier for good; ``goes`` when its target table is to be removed.
        copy: the new copy that is being made beside it.
        waits: whether it stays where it is until a dump that is made elsewhere was adopted.
        failures: attempts that failed since the newest frontier.
        aside: transactions that were put aside and whose changes it lacks.
        since_scn: what came up to here went with a target table that somebody removed, 0 when none was.
        first_scn: where the rows of the dump begin that last ended, 0 when that is not known.
        unseen: whether its target could not be looked at yet, or is older than the log; all that is known is the
            frontier's word, and what the log says of it is left for then.
        foreign: what somebody else has last done to its rows, empty for nothing.
    """

    id: TableId
    position: int = 0
    complete_scn: int | None = None
    version: int = -1
    schema_id: int = 0
    rows: int = 0
    error: HeadraceError | None = None
    attempts: int = 0
    failed_at: float = 0.0
    retry_at: float = 0.0
    left: str = ""
    goes: bool = False
    copy: Copy | None = None
    waits: bool = False
    failures: int = 0
    aside: int = 0
    since_scn: int = 0
    first_scn: int = 0
    unseen: bool = False
    foreign: str = ""
    last_batch: BatchCost | None = None
    all_batches: BatchCost = field(default_factory=BatchCost)
    maintenance: MaintenanceCost = field(default_factory=MaintenanceCost)

    def stand(self, at: Position, entry: TableEntry | None) -> None:
        """Take the position from which it goes on.

        Args:
            at: the position.
            entry: its line in the newest frontier before the job began, None when there is none.
        """
        state = at.state
        self.unseen = at.problem is not None
        self.position, self.complete_scn = at.applied_scn, at.complete_scn
        self.version = state.version if state else -1
        self.schema_id = state.schema_id if state else 0
        self.copy = state.copy if state else None
        if entry is None:
            return
        if self.unseen:
            self.version = entry.version
        self.left = entry.reason if entry.state == "left" else ""
        self.since_scn = self.position if self.version < entry.version else entry.since_scn
        # Its end was written down, and a crash came before it was carried out.
        self.goes = bool(self.left) and entry.version < 0 <= self.version

    @property
    def mode(self) -> TableMode:
        """Whether readers find it at the frontier, and why not."""
        if self.error is not None or (self.aside and not self.left):
            return "failing"
        if self.left:
            return "left"
        return "copying" if self.complete_scn is None else "live"

    def entry(self, counts: TableCounts) -> TableEntry:
        """Return its line in the frontier, with what was counted of it up to there."""
        return TableEntry(
            self.version,
            self.position,
            self.complete_scn,
            self.mode,
            self.left,
            counts,
            self.since_scn,
        )

    @property
    def given_up(self) -> bool:
        """Whether it is not tried again before the next start."""
        return self.error is not None and self.retry_at == math.inf

    @property
    def needs_person(self) -> bool:
        """Whether it was tried again often enough to say that only a person mends what stands in its way."""
        error, often = self.error, self.attempts >= _GIVE_UP_AFTER or self.given_up
        return error is not None and error.retry is not Retry.TIMED and often

    @property
    def heals_by_rows(self) -> bool:
        """Whether rows that come behind those at which it failed may mend it, however far behind them they are.

        A patch without its row heals when the row was read again, and rows that fit nothing when the table is copied
        anew. A target that could not be written, or was too old, takes its rows in steps of the usual size.
        """
        error = self.error
        if error is None or error.retry is Retry.TIMED:
            return False
        return type(error) not in (TargetError, TargetBehind)

    @property
    def said(self) -> dict[str, str] | None:
        """What stands in the way of its rows, and what to do: name, message and next step; None for nothing.

        Of an error also whether time may still mend it (``retry``).
        """
        if self.error is not None:
            return {
                "name": type(self.error).__name__,
                "message": self.error.message,
                "next_step": self.error.next_step,
                "retry": (Retry.MANUAL if self.needs_person else Retry.TIMED).value,
            }
        if self.waits:
            return {
                "name": AWAITS_ADOPTION,
                "message": f"{self.id} is filled elsewhere; the change log is kept for it from SCN {self.position} on.",
                "next_step": f"headrace adopt FILE --table {self.id} --files FOLDER --at POSITION",
            }
        if not self.left and self.aside:
            return {
                "name": DEAD_LETTERS,
                "message": f"{self.id} goes on without the changes of {counted(self.aside, 'transaction')} put aside.",
                "next_step": f"headrace dead-letters list FILE --table {self.id}, then replay or discard them.",
            }
        if not self.left and self.foreign:
            return self._changed
        if not self.left:
            return None
        kept = "its target table keeps its last rows; remove it when nobody reads it."
        gone = "there is no target table of it any more."
        return {
            "name": TABLE_LEFT,
            "message": self.left,
            "next_step": gone if self.version < 0 else kept,
        }

    @property
    def _changed(self) -> dict[str, str]:
        """What somebody else did to its rows, and what to do."""
        return {
            "name": TARGET_CHANGED,
            "message": f"Somebody else changed rows of the target table of {self.id} ({self.foreign}).",
            "next_step": "let headrace be its only writer; where headrace verify FILE finds differences, move it away: "
            f"headrace dump start FILE --table {self.id}. This is said until the next start.",
        }

    def status(self) -> TableStatus:
        """Return what the job says of it."""
        return TableStatus(
            self.mode,
            self.position,
            self.rows,
            self.version,
            self.said,
            self.last_batch,
            self.all_batches,
            self.maintenance,
            f"{self.schema_id:016x}" if self.schema_id else "",
        )

    def fail(self, error: HeadraceError, patience: Patience, now: float) -> None:
        """Leave the frontier set for a while that grows with each attempt, or until the next start.

        Args:
            error: what stands in its way.
            patience: says when it is given up.
            now: monotonic seconds.
        """
        if self.error is None:
            self.failed_at = now
        self.error = error
        self.attempts += 1
        self.failures += 1
        self.retry_at = now + min(
            _RETRY_FROM_S * 2 ** min(self.attempts - 1, 16), patience.longest_s
        )
        if patience.for_s is not None and now - self.failed_at >= patience.for_s:
            self.retry_at = math.inf
            self.error = RetriesExhausted(
                f"{self.id}: given up after {self.attempts} attempts in {now - self.failed_at:.0f} s (retry.for_s is "
                f"{patience.for_s:g}); last: {error.message}",
                next_step=f"{error.next_step.rstrip('.') or 'see its log'}; then stop and start the replicator.",
            )

    def shows(self, state: TargetState) -> None:
        """Take note of what its target is like now."""
        self.version = state.version
        if state.foreign != self.foreign:
            self.foreign = state.foreign
            if self.foreign:
                _LOG.warning("%(message)s Next step: %(next_step)s", self._changed)

    def begin_anew(self) -> None:
        """Leave the frontier set until the next copy: somebody removed the target table, and its rows with it."""
        self.since_scn = self.position
        if self.complete_scn is not None and self.first_scn > self.since_scn:
            # The dump that fills the new one ends in the batch at work.
            return
        self.complete_scn = None
        _LOG.warning(
            "%s: its target table was removed; the new one has only what came since. Next step: "
            "headrace dump start FILE --table %s",
            *(self.id, self.id),
        )

    def complete(self, end: SystemEvent) -> None:
        """Take note of the end of a dump, unless rows of that dump went with a target table that was removed."""
        first_scn = int(end.payload.get("first_scn", 0))
        if self.since_scn and first_scn <= self.since_scn:
            return
        self.complete_scn = max(self.complete_scn or 0, end.scn)
        self.first_scn = first_scn

    def recover(self) -> None:
        """Come back."""
        self.error, self.attempts, self.failed_at, self.retry_at = None, 0, 0.0, 0.0


@dataclass(slots=True)
class Work:
    """What one batch asks of one table."""

    table: TableAtWork
    steps: deque[Step]
    failed: bool = False

    def fail(self) -> None:
        """Leave the rest for another time."""
        self.failed = True
        self.steps.clear()

    def pass_by(self, scn: int) -> None:
        """Leave out all steps up to an SCN; only a dump that ends behind it makes the table complete."""
        while self.steps and self.steps[0].upto_scn <= scn:
            self.steps.popleft()
        self.table.position = scn
        if (self.table.complete_scn or 0) <= scn:
            self.table.complete_scn = None
        _LOG.warning(
            "%s: changes up to SCN %d fit no settings and are left out", self.table.id, scn
        )


def all_fail(tables: Iterable[TableAtWork]) -> bool:
    """Return whether no table gets anywhere; one that left the source, or is filled elsewhere, would not anyway."""
    found = list(tables)
    stands = all(table.error or table.left or table.waits for table in found)
    return stands and any(table.error for table in found)


def end_if_hopeless(tables: Sequence[TableAtWork], patience: Patience) -> None:
    """Return while there is a reason to go on.

    Raises:
        HeadraceError: an error forbids to go on, no table has got anywhere for long, or one was given up that the job
            ends with.
    """
    failing = [table for table in tables if table.error is not None]
    for table in failing:
        error = table.error
        if error and (error.retry is Retry.NEVER or isinstance(error, ChangeLogError)):
            # A damaged log is damaged for every table, and no pause mends it.
            raise error
        if error and table.given_up and not patience.alone:
            raise error
    if all_fail(tables):
        worst = min(failing, key=lambda table: table.attempts)
        hopeless = worst.attempts >= _GIVE_UP_AFTER or all(t.given_up for t in failing)
        if hopeless and worst.error is not None:
            raise worst.error


def left_because(event: SystemEvent) -> str:
    """Return why a table leaves the frontier, empty when it does not."""
    if event.payload.get("superseded"):
        # Another table has the name already, and was told of.
        return ""
    if event.kind is SystemKind.DROP_TABLE:
        return f"{event.table} was dropped at the source."
    if event.kind is SystemKind.RENAME_TABLE:
        return f"{event.table} is called {event.payload['to']} at the source now."
    return ""
