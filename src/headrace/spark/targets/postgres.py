"""Tables of a PostgreSQL database."""

from __future__ import annotations

from headrace.lake.capabilities import POSTGRES
from headrace.spark.targets.server import ServerTarget

__all__ = ["PostgresTarget"]


class PostgresTarget(ServerTarget):
    """Tables of a PostgreSQL database."""

    capabilities = POSTGRES
