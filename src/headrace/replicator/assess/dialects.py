"""The SQL of a kind of warehouse; apart, because only warehouses need it."""

from __future__ import annotations

from headrace.lake.capabilities import Capabilities
from headrace.lake.sql.dialect import DUCKDB, POSTGRES, Dialect
from headrace.lake.sql.mysql_words import MYSQL

__all__ = ["dialect_of"]

_DIALECTS = {"duckdb": DUCKDB, "postgres": POSTGRES, "mysql": MYSQL}


def dialect_of(target: Capabilities) -> Dialect:
    """Return the SQL of a kind of warehouse."""
    return _DIALECTS[target.format]
