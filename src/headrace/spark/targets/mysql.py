"""Tables of a MySQL or MariaDB server."""

from __future__ import annotations

from headrace.lake.capabilities import MYSQL
from headrace.spark.targets.server import ServerTarget

__all__ = ["MysqlTarget"]


class MysqlTarget(ServerTarget):
    """Tables of a MySQL or MariaDB server."""

    capabilities = MYSQL
