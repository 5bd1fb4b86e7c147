"""One Spark session for all tests of this folder; it is most of their time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.spark.session import SessionSettings, build_session
from tests.fixtures_postgres import database, postgres_server, sql
from tests.fixtures_store import object_server, prefix, proxy
from tests.spark.log import Log, lent
from tests.spark.policies import Bench
from tests.spark.subjects import KINDS, Subject, made

__all__ = [
    "database",
    "object_server",
    "postgres_server",
    "prefix",
    "proxy",
    "spark",
    "sql",
    "subject",
]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """Give a change log that a test writes."""
    made = Log(tmp_path / "changelog")
    yield made
    made.writer.close()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session."""
    scratch = tmp_path_factory.mktemp("spark")
    session = build_session(SessionSettings(driver_memory="1g", scratch=scratch))
    yield session
    session.stop()


@pytest.fixture(params=KINDS)
def subject(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Subject:
    """Give each implementation of the target port in turn."""
    return made(request.param, request, spark, tmp_path)


@pytest.fixture
def policed(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    """Give a table whose source changes its shape."""
    yield from lent(Bench(spark, tmp_path))
