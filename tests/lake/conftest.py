"""A Spark session, for the tests that compare our reader with Spark's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from headrace.spark.session import SessionSettings, build_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of the process, which other folders' tests may share."""
    scratch = tmp_path_factory.mktemp("spark")
    session = build_session(SessionSettings(driver_memory="1g", scratch=scratch))
    yield session
    session.stop()
