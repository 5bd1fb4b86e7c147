"""How Spark reads, and writes on, a partition whose value is the text that folders have for null."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.testing.notation import table_of
from tests.lake.local_table import LocalTable
from tests.lake.test_commits import folded_of

pytestmark = pytest.mark.spark

TEXT = "__HIVE_DEFAULT_PARTITION__"


def test_a_text_that_folders_have_for_null_is_a_value_of_its_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = table_of(3)
    table = LocalTable(tmp_path, schema, partition_by=("c1",))
    table.apply(folded_of(schema, f"+I(1,{TEXT},a) +I(2,.,b) +I(3,x,c)"), 1)

    def both() -> Counter[tuple[object, ...]]:
        rows = spark.read.format("delta").load(str(tmp_path)).collect()
        found = Counter(tuple(row) for row in rows)
        assert found == table.content()
        return found

    assert both() == Counter([(1, TEXT, "a"), (2, None, "b"), (3, "x", "c")])
    name = f"delta.`{tmp_path}`"
    chosen = spark.sql(f"SELECT k FROM {name} WHERE c1 = '{TEXT}'").collect()
    assert [row.k for row in chosen] == [1]
    spark.sql(f"UPDATE {name} SET c2 = 'spark' WHERE c1 = 'x'")
    assert both()[3, "x", "spark"] == 1
