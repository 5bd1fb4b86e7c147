"""One Spark session for all tests of a process; whoever imports the fixture shares it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from headrace.spark.session import SessionSettings, build_session

__all__ = ["spark"]


@pytest.fixture(scope="session")
def spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """The session. It is never stopped before the last test: others would be left without one."""
    scratch = tmp_path_factory.mktemp("spark")
    # Hours leave more behind than minutes, and collecting it would take most of the time.
    memory = "3g" if request.config.getoption("--long") else "1g"
    session = build_session(SessionSettings(driver_memory=memory, scratch=scratch))
    yield session
    session.stop()
