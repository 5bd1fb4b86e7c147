"""Triggers on MySQL and MariaDB: changes get their number from whoever first sees them, in one snapshot."""

from headrace.sources.trigger.mysql.source import MysqlTriggerSource

__all__ = ["MysqlTriggerSource"]
