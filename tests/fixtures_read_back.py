"""Under ``--long`` the Delta tables that a test leaves behind are read by Spark and by us, with equal content.

Some of them Spark then changes, optimises, cleans and reads as of before, and still both show the same.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

import pyarrow as pa
import pytest

from headrace.lake.delta_log import DeltaTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["READ_BACK", "WORKED_ON", "every_table_is_read_back"]

Rows: TypeAlias = Counter[tuple[Any, ...]]

READ_BACK = "Delta tables were read by Spark and by us"
WORKED_ON = "Delta tables were worked on by Spark"
"""The properties of a test's report that count its tables."""

_MOST = 100
"""Of a test that leaves more behind so many are drawn: a table takes Spark half a second."""
_AT_ONCE = 4
_SHARE = 0.05
"""Of the tests whose last table Spark works on; it does so for each of which tables are drawn, too."""

_NAME_BYTES = 255
"""What file systems take as the name of a folder."""


@pytest.fixture(autouse=True)
def every_table_is_read_back(request: pytest.FixtureRequest) -> Iterator[None]:
    """Read the tables below the test's folder once it is over; the mark ``unreadable`` says that they cannot be."""
    marked = request.node.get_closest_marker("unreadable")
    if not request.config.getoption("--long") or "tmp_path" not in request.fixturenames or marked:
        yield
        return
    folder: Path = request.getfixturevalue("tmp_path")
    spark: SparkSession = request.getfixturevalue("spark")
    yield
    drawn = random.Random(request.node.nodeid)
    found = sorted(log.parent for log in folder.rglob("_delta_log") if any(log.glob("*.json")))
    many = len(found) > _MOST
    if many:
        found = drawn.sample(found, _MOST)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in pool.map(partial(_read_back, spark), found):
            pass
    worked_on = found[-1:] if many or drawn.random() < _SHARE else []
    worked_on = [table for table in worked_on if _writable_by_spark(table)]
    for table in worked_on:
        _work_on(spark, table)
    # Spark keeps what it learnt of a table for an hour; of thousands that fills its memory.
    java = spark._jvm
    assert java is not None
    java.org.apache.spark.sql.delta.DeltaLog.clearCache()
    properties = ((READ_BACK, len(found)), (WORKED_ON, len(worked_on)))
    request.node.user_properties.extend(properties)


def _read_back(spark: SparkSession, table: Path, version: int | None = None) -> Rows:
    """Return the rows of a table, which are the same to Spark and to us."""
    held = DeltaTable(table).snapshot(version).to_table()
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    theirs = reader.load(str(table)).toArrow()
    assert theirs.schema.names == held.schema.names, table
    found = _rows(held)
    assert _rows(theirs.cast(held.schema)) == found, table
    return found


def _work_on(spark: SparkSession, table: Path) -> None:
    """Have Spark update, merge, optimise and vacuum a table, and look at it after each."""
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    # As many tasks as there are folders to list, and not ten thousand.
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")
    before, version = _read_back(spark, table), DeltaTable(table).latest_version()
    name = f"delta.`{table}`"
    columns = [f"`{column}`" for column in DeltaTable(table).snapshot().schema.names]
    equal = " AND ".join(f"t.{column} <=> s.{column}" for column in columns)
    some = f"(SELECT DISTINCT * FROM {name} ORDER BY ALL LIMIT 3)"
    spark.sql(f"UPDATE {name} SET {columns[-1]} = {columns[-1]}")
    assert _read_back(spark, table) == before, table
    spark.sql(f"MERGE INTO {name} t USING {some} s ON {equal} WHEN MATCHED THEN DELETE")
    merged = _read_back(spark, table)
    assert not before or merged < before, table
    spark.sql(f"OPTIMIZE {name}")
    assert _read_back(spark, table) == merged, table
    assert _read_back(spark, table, version) == before, table
    spark.sql(f"VACUUM {name} RETAIN 0 HOURS")
    assert _read_back(spark, table) == merged, table


def _writable_by_spark(table: Path) -> bool:
    """Whether the partitions' values are short enough for the folders that Spark names after them, uncut."""
    return all(
        len(f"{name}={quote(value or '', safe='')}") <= _NAME_BYTES
        for file in DeltaTable(table).snapshot().files
        for name, value in file.partition_values.items()
    )


def _rows(table: pa.Table) -> Rows:
    return Counter(zip(*(_comparable(column) for column in table.columns), strict=True))


def _comparable(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_temporal(column.type):
        # Python's own days end before the tables' do.
        width = pa.int32() if column.type.bit_width == 32 else pa.int64()
        return list(column.cast(width).to_pylist())
    if pa.types.is_floating(column.type):
        # What is no number equals nothing, and minus zero equals zero: their texts say what they are.
        return [repr(value) for value in column.to_pylist()]
    return list(column.to_pylist())
