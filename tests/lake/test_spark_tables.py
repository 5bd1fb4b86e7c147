"""Tables that Spark wrote, read by us and by Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.errors import UnsupportedTableFeature
from headrace.lake import DeltaTable

pytestmark = pytest.mark.spark

TYPES = """
    id bigint, flag boolean, tiny tinyint, small smallint, whole int, single float, double double,
    money decimal(12,2), huge decimal(38,10), words string, bytes binary, day date,
    instant timestamp, local timestamp_ntz
"""
ROWS = """
    (1, true, -7, -300, 70000, float('1.5'), 1e-300, 1.50, 12345678901234567890.0123456789, 'größe',
     X'00FF', date'0001-01-01', timestamp'9999-12-31 23:59:59.999999Z', timestamp_ntz'1582-10-04 01:02:03'),
    (2, false, 7, 300, -70000, float('NaN'), double('-0.0'), -0.01, -1e-10, '',
     X'', date'1969-12-31', timestamp'1969-12-31 23:59:59.999999Z', timestamp_ntz'2024-02-29 12:00:00.5'),
    (3, null, null, null, null, null, null, null, null, null, null, null, null, null)
"""


def rows(values: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in values)


def assert_reads_alike(spark: SparkSession, path: Path, version: int | None = None) -> None:
    """Compare every row and the schema of a version, as Arrow values."""
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    theirs = reader.load(str(path)).toArrow()
    ours = DeltaTable(path).snapshot(version).to_table()
    assert ours.schema.names == theirs.schema.names
    assert [str(t) for t in ours.schema.types] == [
        str(t).replace("timestamp[us, tz=Etc/UTC]", "timestamp[us, tz=UTC]")
        for t in theirs.schema.types
    ]
    assert rows(ours.to_pylist()) == rows(theirs.cast(ours.schema).to_pylist())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "table"


def test_every_type_in_both_forms_of_timestamps(spark, path):
    session = spark.newSession()
    session.sql(f"CREATE TABLE delta.`{path}` ({TYPES}) USING delta")
    session.sql(f"INSERT INTO delta.`{path}` VALUES {ROWS}")
    session.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    session.sql(f"INSERT INTO delta.`{path}` VALUES {ROWS}")
    assert_reads_alike(session, path)
    assert DeltaTable(path).snapshot().to_table().num_rows == 6


def test_versions_across_checkpoints_and_changed_columns(spark, path):
    table = f"delta.`{path}`"
    properties = "'delta.checkpointInterval' = '4', 'delta.enableTypeWidening' = 'true'"
    spark.sql(
        f"CREATE TABLE {table} (id int, price decimal(6,2), name string) USING delta "
        f"TBLPROPERTIES ({properties})"
    )
    spark.sql(f"INSERT INTO {table} SELECT id, id / 4, 'n' || id FROM range(50)")
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (note string)")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN price TYPE decimal(12,4)")
    spark.sql(f"DELETE FROM {table} WHERE id < 10")
    spark.sql(f"INSERT INTO {table} VALUES (99, 1.2345, null, 'm')")
    newest = DeltaTable(path).latest_version()
    assert newest == 5
    assert list((path / "_delta_log").glob("*.checkpoint.parquet"))
    for version in (1, newest):
        assert_reads_alike(spark, path, version)
    before = rows(DeltaTable(path).snapshot().to_table().to_pylist())
    for commit in range(4):
        (path / "_delta_log" / f"{commit:020d}.json").unlink()
    assert rows(DeltaTable(path).snapshot().to_table().to_pylist()) == before


def test_partitions_and_their_texts(spark, path):
    table = f"delta.`{path}`"
    spark.sql(
        f"CREATE TABLE {table} (id int, day date, word string, at timestamp, price decimal(6,2)) "
        "USING delta PARTITIONED BY (day, word, at, price)"
    )
    spark.sql(
        f"INSERT INTO {table} VALUES "
        "(1, date'2024-02-29', 'a b/ü%', timestamp'2024-02-29 10:11:12.000013Z', 1.50), "
        "(2, null, null, null, null)"
    )
    assert_reads_alike(spark, path)


def test_the_applied_position_is_what_spark_committed(spark, path):
    session = spark.newSession()
    session.sql(f"CREATE TABLE delta.`{path}` (id int) USING delta")
    session.conf.set("spark.databricks.delta.write.txnAppId", "headrace/shop/public.orders")
    session.conf.set("spark.databricks.delta.write.txnVersion", str(2**40))
    session.sql(f"INSERT INTO delta.`{path}` VALUES (1)")
    snapshot = DeltaTable(path).latest()
    assert snapshot is not None
    assert snapshot.transactions == {"headrace/shop/public.orders": 2**40}


def test_vectors_that_spark_wrote_hide_their_rows(spark, path):
    table = f"delta.`{path}`"
    spark.sql(
        f"CREATE TABLE {table} (id int) USING delta "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    spark.range(0, 10_000, 1, 2).selectExpr("CAST(id AS INT) id").write.format("delta").mode(
        "append"
    ).save(str(path))
    for condition in ("id % 3 = 0", "id BETWEEN 100 AND 4000"):
        spark.sql(f"DELETE FROM {table} WHERE {condition}")
        assert_reads_alike(spark, path)
    assert any(file.vector for file in DeltaTable(path).snapshot().files)


@pytest.mark.parametrize(
    ("properties", "feature"),
    [
        ("'delta.columnMapping.mode' = 'id'", "columnMapping by id"),
        ("'delta.checkpointPolicy' = 'v2'", "v2Checkpoint"),
    ],
)
def test_features_we_lack_are_refused_by_name(spark, path, properties, feature):
    spark.sql(f"CREATE TABLE delta.`{path}` (id int) USING delta TBLPROPERTIES ({properties})")
    with pytest.raises(UnsupportedTableFeature, match=feature):
        DeltaTable(path).snapshot()
