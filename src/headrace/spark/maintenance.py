"""When tables are maintained: between two batches, a bounded piece of work of each of a few, for a share of all time.

Nothing of ours writes a table meanwhile, so no batch is done twice and no piece in vain; a batch that comes due waits
for one piece at most. Tables take turns.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.errors import HeadraceError
from headrace.lake.pieces import Sizes
from headrace.lake.rewrite import Rewritten
from headrace.model.schema import TableId
from headrace.spark.targets.base import Target

__all__ = ["Maintenance", "MaintenanceSettings"]

_LOG = logging.getLogger(__name__)
_IDLE_REST_S = 1.0
"""Pause when there was nothing to do."""
_FAILED_REST_S = 600.0
"""Pause of a table whose maintenance failed: its batches may well go on, and say what stands in their way."""


@dataclass(frozen=True, slots=True)
class MaintenanceSettings:
    """What was asked for.

    Attributes:
        sizes: what files should look like.
        load: share of all time that maintenance may take, above 0 and up to 1.
    """

    sizes: Sizes = field(default_factory=Sizes)
    load: float = 0.1


class Maintenance:
    """The maintenance of all tables of one job.

    Args:
        target: where they are.
        settings: None for no maintenance.
        key_of: returns the columns that a table's files are sorted by.
        most: tables worked on at the same time.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        target: Target,
        settings: MaintenanceSettings | None,
        key_of: Callable[[TableId], tuple[str, ...]],
        most: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target = target
        self._settings = settings if target.capabilities.maintenance else None
        self._key_of = key_of
        self._most = most
        self._clock = clock
        self._turns: dict[TableId, None] = {}
        self._in_order: dict[TableId, int] = {}
        self._rests: dict[TableId, float] = {}
        self._next = 0.0

    @property
    def is_due(self) -> bool:
        """Whether there may be something to do."""
        return self._settings is not None and self._clock() >= self._next

    def between_batches(self, tables: Mapping[TableId, int]) -> dict[TableId, Rewritten]:
        """Do a little, if it is time; return what was done to which tables.

        Args:
            tables: that may be worked on, with their newest versions.
        """
        if self._settings is None or not self.is_due:
            return {}
        begun = self._clock()
        self._turns |= dict.fromkeys(tables)
        keys = {
            table: self._key_of(table)
            for table in self._turns
            if table in tables
            and self._in_order.get(table) != tables[table]
            and self._rests.get(table, 0.0) <= begun
        }
        outcomes = self._target.maintain(keys, self._settings.sizes, self._most) if keys else {}
        done = {}
        for table, outcome in outcomes.items():
            # Whoever had a turn stands at the end of the line.
            self._turns[table] = self._turns.pop(table)
            if isinstance(outcome, HeadraceError):
                self._rests[table] = begun + _FAILED_REST_S
                _LOG.warning("%s was not maintained: %s", table, outcome)
            elif outcome is None:
                self._in_order[table] = tables[table]
            else:
                done[table] = outcome
                files = outcome.files_before, outcome.files_after
                _LOG.info(
                    "%s was maintained: %d files became %d (%s)", table, *files, outcome.reason
                )
        ended = self._clock()
        rest = (ended - begun) * (1 / self._settings.load - 1)
        self._next = ended + (rest if done else max(rest, _IDLE_REST_S))
        return done
