"""MariaDB from 10.5 on: the binary log, chunk reads in snapshots whose place in the log is known, watermarks."""

from headrace.sources.mysql.source import MysqlSource

__all__ = ["MysqlSource"]
