"""A Spark session, for the tests that compare our reader with Spark's."""

from __future__ import annotations

from tests.fixtures_spark import spark

__all__ = ["spark"]
