"""What the tests of this folder are given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.fixtures_binlog import mariadb_server, mysql_server
from tests.fixtures_postgres import database, postgres_server, sql
from tests.fixtures_read_back import every_table_is_read_back
from tests.fixtures_spark import spark
from tests.fixtures_store import object_server, prefix, proxy
from tests.spark.log import Log, lent
from tests.spark.policies import Bench
from tests.spark.subjects import KINDS, Subject, made

__all__ = [
    "database",
    "every_table_is_read_back",
    "mariadb_server",
    "mysql_server",
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


@pytest.fixture(params=KINDS)
def subject(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Subject:
    """Give each implementation of the target port in turn."""
    return made(request.param, request, spark, tmp_path)


@pytest.fixture
def policed(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    """Give a table whose source changes its shape."""
    yield from lent(Bench(spark, tmp_path))
