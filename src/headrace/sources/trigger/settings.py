"""What a trigger source is told."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

from headrace.errors import ConfigError
from headrace.model.schema import TableId
from headrace.sources.patterns import TablePatterns

__all__ = ["TriggerSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerSettings:
    """What every trigger source is told, whichever server it reads.

    Attributes:
        name: of the pipeline, under which its place is kept.
        queues: patterns of tables into which events are inserted: what else becomes of their rows is no change.
        queue_rows: whether rows of queues are removed when they are delivered.
        start: where a pipeline begins that has no place yet: behind all that is there, or at the ``oldest`` change
            that is kept.
        poll_s: longest time between two looks at the clock while nothing comes.
        keep_s: how long changes stay that every pipeline has read.
        abandon_s: a pipeline that was not seen for so long is waited for no more.
        lock_s: how long the making of a trigger waits for its table before it lets waiting writers pass.
        acknowledge_s: least time between two notes of our place.
        slow_query_s: a query of the change tables that takes longer is counted as slow.
        block_rows: rows after which a block is handed over, in the middle of a transaction if need be.
        block_bytes: the same in bytes of the images.
    """

    name: str
    queues: tuple[str, ...] = ()
    queue_rows: Literal["keep", "delete"] = "keep"
    start: Literal["now", "oldest"] = "now"
    poll_s: float = 0.25
    keep_s: float = 86_400.0
    abandon_s: float = 7 * 86_400.0
    lock_s: float = 2.0
    acknowledge_s: float = 1.0
    slow_query_s: float = 5.0
    block_rows: int = 65_536
    block_bytes: int = 8 << 20

    def is_queue(self, table: TableId) -> bool:
        """Return whether a table is a queue."""
        return bool(self.queues) and _patterns(self.queues).match(table)

    def removes(self, table: TableId) -> bool:
        """Return whether a table is a queue whose delivered rows are removed."""
        return self.queue_rows == "delete" and self.is_queue(table)

    def validate(self) -> None:
        """Check what can be checked without the server.

        Raises:
            ConfigError: names the field.
        """
        if self.abandon_s < self.keep_s:
            raise ConfigError(
                "source.abandon_hours is less than source.keep_hours.",
                next_step="give a pipeline that is away at least as long as changes are kept.",
            )


@functools.cache
def _patterns(texts: tuple[str, ...]) -> TablePatterns:
    return TablePatterns(texts)
