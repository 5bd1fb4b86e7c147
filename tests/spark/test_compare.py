"""Two frames that should hold the same rows: what is missing, extra or different, and what cannot be compared."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import TargetError
from headrace.spark.compare import compare
from tests.requirements import req

pytestmark = pytest.mark.spark

Cells = tuple[int | None, str | None]
DDL = "`a key` BIGINT, value STRING"


def frame(spark: SparkSession, rows: list[Cells]) -> DataFrame:
    return spark.createDataFrame(rows, DDL)


def counted(
    expected: list[Cells], found: list[Cells]
) -> tuple[int, int, int, dict[int | None, tuple[int, int]]]:
    """Count the long way round: missing, extra, different, and by key the rows of one side alone."""
    ours, theirs = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    sides = {}
    for key in {row[0] for row in [*ours, *theirs]}:
        here, there = (sum(n for row, n in s.items() if row[0] == key) for s in (ours, theirs))
        sides[key] = (here, there)
    different = sum(min(pair) for pair in sides.values())
    return ours.total() - different, theirs.total() - different, different, sides


@req("P71")
def test_each_row_that_only_one_side_has_is_counted_once(spark: SparkSession) -> None:
    rng = random.Random(5)
    for size in (0, 5, 40):
        expected: list[Cells] = [
            (rng.choice([*range(30), None]), rng.choice(["a", "b", None])) for _ in range(size)
        ]
        found = [row for row in expected if rng.random() < 0.7]
        found += [(rng.choice([3, 99, None]), "a") for _ in range(size // 4)]
        rng.shuffle(found)
        told = compare(frame(spark, expected), frame(spark, found), ["a key"])
        missing, extra, different, sides = counted(expected, found)
        assert (told.expected_rows, told.found_rows) == (len(expected), len(found))
        assert (told.missing, told.extra, told.different) == (missing, extra, different)
        assert {key: (a, b) for key, a, b in told.keys.collect()} == sides
        assert told.equal == (not sides)
    assert missing
    assert extra
    assert different


def test_equal_rows_are_equal_in_any_order_of_rows_and_columns(spark: SparkSession) -> None:
    one = spark.sql("SELECT * FROM VALUES (1, double('NaN'), null), (2, 0.0D, 'x') AS t(k, n, s)")
    two = spark.sql("SELECT * FROM VALUES ('x', 2, -0.0D), (null, 1, double('NaN')) AS t(s, k, n)")
    told = compare(one, two, ["k"])
    assert told.equal
    assert str(told) == "equal: 2 rows expected, 2 found; 0 missing, 0 extra, 0 different"


def test_without_a_key_rows_are_missing_or_extra(spark: SparkSession) -> None:
    told = compare(frame(spark, [(1, "a"), (1, "a")]), frame(spark, [(1, "a"), (1, "b")]))
    assert not told.equal
    assert str(told) == "DIFFERENT: 2 rows expected, 2 found; 1 missing, 1 extra, 0 different"


@pytest.mark.parametrize(
    ("found", "key", "text"),
    [
        ("1L AS `a key`", [], r"value \(string, not found\)"),
        ("1 AS `a key`, 'a' AS value", [], r"a key \(bigint, int\)"),
        ("1L AS `a key`, 'a' AS value, 2 AS more", [], r"more \(not expected, int\)"),
        ("1L AS `a key`, 'a' AS value", ["id"], "no column id"),
    ],
)
def test_frames_that_cannot_be_compared_are_refused_by_column(
    spark: SparkSession, found: str, key: list[str], text: str
) -> None:
    with pytest.raises(TargetError, match=text) as caught:
        compare(frame(spark, []), spark.sql(f"SELECT {found}"), key)
    assert caught.value.next_step
