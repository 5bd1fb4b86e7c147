"""What a trigger source is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.errors import ConfigError
from headrace.model.schema import TableId
from headrace.sources.postgres.settings import MARKS_SCHEMA, PostgresSettings

__all__ = ["SCHEMA", "TriggerSettings"]

SCHEMA = MARKS_SCHEMA
"""Namespace of the change tables and their functions; never captured."""


@dataclass(frozen=True, slots=True)
class TriggerSettings:
    """Everything a `headrace.sources.trigger.TriggerSource` is told.

    Attributes:
        database: where the tables are and which of them are captured.
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

    database: PostgresSettings
    start: Literal["now", "oldest"] = "now"
    poll_s: float = 0.25
    keep_s: float = 86_400.0
    abandon_s: float = 7 * 86_400.0
    lock_s: float = 2.0
    acknowledge_s: float = 1.0
    slow_query_s: float = 5.0
    block_rows: int = 65_536
    block_bytes: int = 8 << 20

    @property
    def name(self) -> str:
        """The pipeline, under which its place is kept."""
        return self.database.name

    def selects(self, table: TableId) -> bool:
        """Return whether a table is to be captured."""
        return self.database.filter.selects(table)

    def validate(self) -> None:
        """Check what can be checked without the server.

        Raises:
            ConfigError: names the field.
        """
        self.database.validate()
        if self.abandon_s < self.keep_s:
            raise ConfigError(
                "source.abandon_hours is less than source.keep_hours.",
                next_step="give a pipeline that is away at least as long as changes are kept.",
            )
