"""What a trigger source on PostgreSQL is told."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.schema import TableId
from headrace.sources.postgres.settings import MARKS_SCHEMA, PostgresSettings
from headrace.sources.trigger.settings import TriggerSettings

__all__ = ["SCHEMA", "PostgresTriggerSettings"]

SCHEMA = MARKS_SCHEMA
"""Namespace of the change tables and their functions; never captured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresTriggerSettings(TriggerSettings):
    """Everything a `headrace.sources.trigger.postgres.PostgresTriggerSource` is told.

    Attributes:
        database: where the tables are and which of them are captured.
    """

    database: PostgresSettings

    def selects(self, table: TableId) -> bool:
        """Return whether a table is to be captured."""
        return self.database.filter.selects(table)
