"""Values at the ends of their types, through Spark and Delta: nothing is rounded, shifted or lost."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.lake.delta_log import DeltaTable
from headrace.model.block import Body
from headrace.model.change import change_schema
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.spark.apply import Applier, ApplyOptions
from headrace.spark.targets.merge import MergeTarget
from tests.requirements import req
from tests.spark.log import Log

pytestmark = pytest.mark.spark

LOW, HIGH = -(1 << 63), (1 << 63) - 1
NAN = float("nan")

# Per column its type and the cells of two rows: infinities or extremes, then values far from our time.
CELLS: dict[str, tuple[pa.DataType, list[object]]] = {
    "day": (pa.date32(), [(1 << 31) - 1, -(1 << 31), -735_000 - 730_000, 2_145_042_905]),
    "moment": (pa.timestamp("us"), [HIGH, LOW, -210_866_803_200_000_000, HIGH - 1]),
    "instant": (pa.timestamp("us", tz="UTC"), [HIGH, LOW, -62_135_596_800_000_001, HIGH - 1]),
    "single": (pa.float32(), [float("inf"), -float("inf"), -0.0, NAN]),
    "double": (pa.float64(), [float("inf"), -float("inf"), -0.0, NAN]),
    "exact": (
        pa.decimal128(38, 10),
        [Decimal("9" * 28 + "." + "9" * 10), Decimal("-" + "9" * 28 + "." + "9" * 10), Decimal(0), None],
    ),
    "number": (pa.string(), ["9" * 200, "NaN", "-Infinity", "0.000"]),
    "list": (pa.string(), ["{1,NULL}", "[0:1]={1,2}", "{}", None]),
    "raw": (pa.binary(), [b"", b"\0\xff", b"\\x00", None]),
}  # fmt: skip

SCHEMA = TableSchema(
    TableId("public", "extremes"),
    (
        Column("id", pa.int32(), "integer", nullable=False),
        *(Column(name, type_, name) for name, (type_, _) in CELLS.items()),
    ),
    ("id",),
    KeyCheck.IMMEDIATE,
)


def changes(scn: int, op: str) -> pa.RecordBatch:
    """Return one change per row."""
    count = 4
    arrays = [
        pa.array([scn] * count, pa.int64()),
        pa.array(range(count), pa.int32()),
        pa.array([op] * count, pa.string()),
        pa.nulls(count, pa.binary()),
        pa.array(range(count), pa.int32()),
    ]
    for type_, cells in CELLS.values():
        plain = {pa.date32(): pa.int32()}.get(type_, type_)
        if pa.types.is_timestamp(type_):
            plain = pa.int64()
        arrays.append(pa.array(cells, plain).cast(type_))
    return pa.RecordBatch.from_arrays(arrays, schema=change_schema(SCHEMA))


@req("D112")
def test_extreme_values_pass_through_delta_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    log, lake = Log(tmp_path / "changelog"), tmp_path / "lake"
    schema_id = log.registry.put(SCHEMA)
    first = log.batch(Body(schema_id, SCHEMA.table, changes(log.following, "+I")))
    # The second time they are merged into what is there.
    second = log.batch(Body(schema_id, SCHEMA.table, changes(log.following, "=U")))
    log.complete(SCHEMA)
    applier = Applier(ApplyOptions("test", log.folder, lake), MergeTarget(spark, lake, "test"))
    begin = applier.begin().from_scn
    applier.process(begin, first)
    applier.process(first, log.scn)
    applier.close()
    assert second < log.scn

    folder = lake / "public" / "extremes"
    held = DeltaTable(folder).snapshot().to_table().sort_by("id").combine_chunks()
    wanted = pa.Table.from_batches([changes(0, "+I")]).select(held.column_names)
    for name in wanted.column_names:
        ours, theirs = held.column(name).combine_chunks(), wanted.column(name).combine_chunks()
        if pa.types.is_floating(ours.type):
            # By their bits: the sign of zero, and not a number.
            as_bits = pa.int32() if ours.type == pa.float32() else pa.int64()
            ours, theirs = ours.view(as_bits), theirs.view(as_bits)
        assert ours.equals(theirs), name

    def ids(condition: str) -> list[int]:
        found = spark.sql(f"SELECT id FROM delta.`{folder}` WHERE {condition} ORDER BY id")
        return [row.id for row in found.collect()]

    assert ids("moment = CAST('+294247-01-10 04:00:54.775807' AS TIMESTAMP_NTZ)") == [0]
    assert ids("instant = timestamp_micros(9223372036854775807)") == [0]
    assert ids("day > DATE'2024-01-01'") == [0, 3]
    assert ids("instant < TIMESTAMP'2024-01-01'") == [1, 2]
