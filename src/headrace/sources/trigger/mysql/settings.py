"""What a trigger source on MySQL or MariaDB is told."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.schema import TableId
from headrace.sources.mysql.settings import MysqlSettings
from headrace.sources.trigger.settings import TriggerSettings

__all__ = ["MysqlTriggerSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MysqlTriggerSettings(TriggerSettings):
    """Everything a `headrace.sources.trigger.mysql.MysqlTriggerSource` is told.

    Attributes:
        database: where the tables are and which of them are captured.
    """

    database: MysqlSettings

    def selects(self, table: TableId) -> bool:
        """Return whether a table is to be captured."""
        return self.database.selects(table)
