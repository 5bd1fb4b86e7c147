"""Tables that we wrote, as Spark reads, prunes, changes and cleans them."""

# ruff: noqa: DTZ001 - columns of local time hold times without a zone

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.fold import fold
from headrace.lake.commit import put_commit
from headrace.lake.evolution import evolve_actions
from headrace.model.change import change_schema
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.testing.notation import table_of
from tests.lake.local_table import LocalTable, keep_files_apart
from tests.lake.test_commits import Source, folded_of
from tests.requirements import req

pytestmark = pytest.mark.spark


def in_spark(spark: SparkSession, path: Path, version: int | None = None) -> Counter:
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    return Counter(tuple(row) for row in reader.load(str(path)).collect())


def test_spark_reads_any_version_and_writes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_files_apart(monkeypatch)
    schema = table_of(3)
    table, source = LocalTable(tmp_path, schema), Source(7, 1)
    for scn in range(1, 24):
        table.apply(folded_of(schema, source.batch(60 if scn % 5 == 1 else 2)), scn)
    assert table.vectors()
    for version in (5, 23):
        assert in_spark(spark, tmp_path, version) == table.content(version)
    name = f"delta.`{tmp_path}`"
    spark.sql(f"UPDATE {name} SET c1 = 'spark' WHERE k % 5 = 0")
    assert table.vectors()
    assert in_spark(spark, tmp_path) == table.content()
    # And we go on from what Spark left.
    for scn in range(24, 30):
        table.apply(folded_of(schema, "+R(900,a,b) | +R(901,a,b) | -D(3)"), scn)
    assert in_spark(spark, tmp_path) == table.content()
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    # As many tasks as there are folders to list, and not ten thousand.
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")
    spark.sql(f"VACUUM {name} RETAIN 0 HOURS")
    assert in_spark(spark, tmp_path) == table.content()


TYPES = {
    "id": pa.int64(),
    "flag": pa.bool_(),
    "small": pa.int16(),
    "whole": pa.int32(),
    "single": pa.float32(),
    "real": pa.float64(),
    "money": pa.decimal128(38, 10),
    "words": pa.string(),
    "bytes": pa.binary(),
    "day": pa.date32(),
    "local": pa.timestamp("us"),
    "instant": pa.timestamp("us", tz="UTC"),
}
ROWS: list[list[Any]] = [
    [1, True, -7, 7, 1.5, 1e-300, Decimal("1234567890123456789.0123456789"), "größe", b"\x00\xff"],
    [2, False, 7, -7, -0.0, 0.0, Decimal("-0.0000000001"), "z" * 40, b""],
    [3, None, None, None, None, None, None, None, None],
]
TIMES: list[list[Any]] = [
    [
        dt.date(1, 1, 1),
        dt.datetime(1, 1, 1, 0, 0, 0, 1),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    ],
    [
        dt.date(9999, 12, 31),
        dt.datetime(9999, 12, 31, 23, 59, 59, 998_999),
        dt.datetime(2024, 2, 29, 1),
    ],
    [None, None, None],
]


def every_type() -> tuple[TableSchema, pa.Table]:
    columns = tuple(Column(name, kind, str(kind)) for name, kind in TYPES.items())
    schema = TableSchema(TableId("public", "types"), columns, ("id",), KeyCheck.IMMEDIATE)
    form = change_schema(schema)
    rows = [row + times for row, times in zip(ROWS, TIMES, strict=True)]
    cells = [[1, place, "+I", None, *row] for place, row in enumerate(rows)]
    arrays = [
        pa.array(list(c), f.type) for c, f in zip(zip(*cells, strict=True), form, strict=True)
    ]
    return schema, fold(schema, [pa.record_batch(arrays, schema=form)])


def test_every_type_and_its_bounds(spark: SparkSession, tmp_path: Path) -> None:
    schema, folded = every_type()
    table = LocalTable(tmp_path, schema)
    table.apply(folded, 1)
    frame = spark.read.format("delta").load(str(tmp_path))
    theirs = frame.toArrow().cast(table.table.snapshot().schema)
    assert theirs.to_pylist() == table.table.snapshot().to_table().to_pylist()
    # Every value is found by itself: no bound keeps Spark from the file that holds it.
    frame.createOrReplaceTempView("types")
    first, second, _ = table.table.snapshot().to_table().to_pylist()
    # Each type once, and those whose bounds are cut or rounded twice.
    wanted = [(name, value) for name, value in first.items() if name != "bytes"]
    wanted += [(name, second[name]) for name in ("words", "day", "local", "money")]
    counts = []
    for name, value in wanted:
        text = repr(value) if isinstance(value, bool | int | float) else f"'{value}'"
        kind = frame.schema[name].dataType.simpleString()
        counts.append(f"(SELECT COUNT(*) FROM types WHERE {name} = CAST({text} AS {kind}))")
    (found,) = spark.sql(f"SELECT {', '.join(counts)}").collect()
    assert dict(zip(wanted, found, strict=True)) == dict.fromkeys(wanted, 1)


@req("C30")
def test_columns_that_were_added_and_widened(spark: SparkSession, tmp_path: Path) -> None:
    def shape(*columns: tuple[str, pa.DataType]) -> TableSchema:
        made = tuple(Column(name, kind, str(kind)) for name, kind in columns)
        return TableSchema(TableId("public", "t"), made, ("k",), KeyCheck.IMMEDIATE)

    def change(schema: TableSchema, *rows: tuple) -> pa.Table:
        form = change_schema(schema)
        cells = [[1, place, "+R", None, *row] for place, row in enumerate(rows)]
        arrays = [
            pa.array(list(c), f.type) for c, f in zip(zip(*cells, strict=True), form, strict=True)
        ]
        return fold(schema, [pa.record_batch(arrays, schema=form)])

    first = shape(("k", pa.int32()), ("n", pa.int16()), ("d", pa.decimal128(6, 2)))
    table = LocalTable(tmp_path, first)
    table.apply(change(first, (1, 5, Decimal("1.25")), (2, 6, Decimal("2.50"))), 1)
    second = shape(
        ("k", pa.int64()),
        ("when", pa.timestamp("us")),
        ("n", pa.int32()),
        ("d", pa.decimal128(12, 4)),
    )
    snapshot = table.table.snapshot()
    put_commit(tmp_path, snapshot.version + 1, evolve_actions(snapshot, second))
    table.schema = second
    moment = dt.datetime(2026, 1, 2)
    table.apply(change(second, (2, moment, 70_000, Decimal("9.1234")), (2**40, None, 8, None)), 2)
    expected = {
        (1, 5, Decimal("1.2500"), None),
        (2, 70_000, Decimal("9.1234"), moment),
        (2**40, 8, None, None),
    }
    assert set(table.content()) == expected
    assert in_spark(spark, tmp_path) == Counter(expected)
