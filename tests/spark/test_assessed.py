"""What an assessment says of settings without Spark is what Spark says of them at a table's first batch."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from headrace.errors import ConfigError
from headrace.lake.settings import TableSettings
from headrace.replicator.assess.expressions import transformation_issues
from headrace.replicator.seed.directives import parse_directive
from headrace.spark.shaping import shaping_of
from tests.replicator.assess.test_expressions import BAD, GOOD, SCHEMA
from tests.requirements import req

pytestmark = pytest.mark.spark

ONLY_SPARK_KNOWS = ("nowhere_known(name)",)
"""Refused by Spark alone: it knows all functions and types."""


@req("C22")
def test_spark_takes_what_is_not_named_and_refuses_what_is(spark: SparkSession) -> None:
    for sql in (*GOOD, *(sql for sql, _, _ in BAD)):
        settings = TableSettings(mask=(("name", sql),))
        named = bool(list(transformation_issues(SCHEMA, settings)))
        refused = sql in ONLY_SPARK_KNOWS
        try:
            shaping_of(spark, SCHEMA, settings)
        except ConfigError:
            refused = not refused
        assert named == refused, sql


@pytest.mark.parametrize(
    ("directive", "shown"),
    [
        ("mask name left x 3", ["xxxa4", "xx", "", None, "xxx😀"]),
        ("mask name right * 3", ["ab***", "**", "", None, "a***"]),
        ("mask name left ' 1", ["'bca4", "'2", "", None, "'b界😀"]),
        ("mask name right \\ 9", ["\\" * 5, "\\" * 2, "", None, "\\" * 4]),
    ],
)
def test_masks_of_the_design_cover_as_many_characters_as_they_say(
    spark: SparkSession, directive: str, shown: list[str | None]
) -> None:
    found = parse_directive(directive)
    assert found is not None
    assert (found.setting, found.column) == ("mask", "name")
    rows = spark.createDataFrame([("abca4",), ("12",), ("",), (None,), ("ab界😀",)], "name STRING")
    masked = [row[0] for row in rows.selectExpr(found.value).collect()]
    assert masked == shown
