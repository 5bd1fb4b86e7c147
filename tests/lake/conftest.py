"""A Spark session, for the tests that compare our reader with Spark's."""

from __future__ import annotations

from tests.fixtures_read_back import every_table_is_read_back
from tests.fixtures_spark import spark

__all__ = ["every_table_is_read_back", "spark"]
