"""The change log as a Spark source: offsets, admission, whole transactions, typed rows."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from headrace.errors import ConfigError
from headrace.model.block import ORIGIN_LOG, Block, Body, transaction_index
from headrace.model.change import change_schema
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.spark.slices import cut
from headrace.spark.source import HeadraceSource, register_source
from headrace.testing.notation import change_batch, parse_history, table_of
from tests.requirements import req
from tests.spark.log import Log

pytestmark = pytest.mark.spark

TABLE = table_of(2)


def stream(log: Log, **options: Any) -> Any:
    """Return a stream reader as Spark makes one."""
    given = {name: str(value) for name, value in options.items()}
    options = {"path": str(log.folder), "table": str(TABLE.table), **given}
    return HeadraceSource(options).streamReader(None)  # type: ignore[arg-type]


@req("C56", "T14")
def test_offsets_end_between_transactions_and_within_the_limit(log: Log) -> None:
    log.write(TABLE, " | ".join("+I(1,a) =U(1,b) =U(1,c)" for _ in range(4)))
    reader = stream(log, max_rows=7)
    assert reader.initialOffset() == {"scn": 0}
    assert reader.getDefaultReadLimit() == ReadMaxRows(7)
    ends = [0]
    while (end := reader.latestOffset({"scn": ends[-1]}, ReadMaxRows(7))["scn"]) > ends[-1]:
        ends.append(end)
    assert ends == [0, 20, 40]
    assert reader.latestOffset({"scn": 0}, ReadAllAvailable()) == {"scn": 40}


def test_a_transaction_over_the_limit_is_a_batch_of_its_own(log: Log) -> None:
    log.write(TABLE, "+I(1,a) | +I(2,a) +I(3,a) +I(4,a) | +I(5,a)")
    reader = stream(log, max_rows=2)
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset({"scn": 0}, limit) == {"scn": 10}
    assert reader.latestOffset({"scn": 10}, limit) == {"scn": 20}
    assert reader.latestOffset({"scn": 20}, limit) == {"scn": 30}


def test_bytes_limit_a_batch_too(log: Log) -> None:
    log.write(TABLE, "+I(1,a) | +I(2,a) | +I(3,a)")
    reader = stream(log, max_bytes=1)
    assert reader.latestOffset({"scn": 0}, ReadMaxRows(1_000_000)) == {"scn": 10}


@req("C57", "T14")
def test_a_transaction_in_pieces_is_not_cut(log: Log) -> None:
    log.write(TABLE, "+I(1,a)")
    pieces(log, 3)
    reader = stream(log, max_rows=1)
    assert reader.latestOffset({"scn": 10}, ReadMaxRows(1)) == {"scn": 20}
    slices = cut(log_refs(log, 0), 0, log.scn, 9)
    assert [(part.after_scn, part.upto_scn) for part in slices] == [(0, 10), (10, 20)]
    assert len(slices[1].refs) == 3


@req("C56")
def test_an_open_transaction_is_not_offered(log: Log) -> None:
    log.write(TABLE, "+I(1,a)")
    pieces(log, 2, finished=False)
    reader = stream(log)
    assert reader.latestOffset({"scn": 0}, ReadAllAvailable()) == {"scn": 10}
    assert reader.latestOffset({"scn": 10}, ReadAllAvailable()) == {"scn": 10}


def test_a_stream_to_the_end_of_the_moment_stops_there(spark: SparkSession, log: Log) -> None:
    log.write(TABLE, " | ".join(f"+I({key},a)" for key in range(6)))
    register_source(spark)
    ends: list[int] = []

    def take(frame: DataFrame, _batch_id: int) -> None:
        ends.append(max(row._scn for row in frame.collect()))

    query = (
        spark.readStream.format("headrace")
        .option("path", str(log.folder))
        .option("table", str(TABLE.table))
        .option("max_rows", "4")
        .load()
        .writeStream.foreachBatch(take)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    assert ends == [40, 60]


TYPED = (
    ("b", pa.bool_(), True),
    ("i2", pa.int16(), -2),
    ("i4", pa.int32(), 4),
    ("i8", pa.int64(), 2**53 + 1),
    ("f4", pa.float32(), 0.5),
    ("f8", pa.float64(), -0.1),
    ("s", pa.string(), "žluťoučký"),
    ("y", pa.binary(), b"\x00\xff"),
    ("d", pa.date32(), date(1999, 12, 31)),
    ("n", pa.decimal128(38, 10), Decimal("1234567890123456789012345678.0123456789")),
    ("t", pa.timestamp("us"), datetime(2026, 3, 29, 2, 30, 0, 123456)),  # noqa: DTZ001 - has no zone
    ("z", pa.timestamp("us", tz="UTC"), datetime(2026, 3, 29, 2, 30, tzinfo=UTC)),
    ("odd `name`", pa.string(), None),
)


def test_rows_arrive_typed_and_older_versions_in_the_newest_columns(
    spark: SparkSession, log: Log
) -> None:
    def schema_of(count: int) -> TableSchema:
        columns = tuple(Column(name, type_, "x") for name, type_, _ in TYPED[:count])
        return TableSchema(TableId("public", "typed"), columns, ("i8",), KeyCheck.IMMEDIATE)

    values: dict[str, Any] = {name: value for name, _, value in TYPED}
    for count in (4, len(TYPED)):
        schema = schema_of(count)
        log.announce(schema)
        row = {"_scn": log.following, "_ord": 0, "_op": "+I", "_missing": None, **values}
        batch = pa.RecordBatch.from_pylist([row], schema=change_schema(schema))
        log.batch(Body(log.registry.put(schema), schema.table, batch))
    register_source(spark)
    reader = spark.read.format("headrace").option("path", str(log.folder))
    found = reader.option("table", "public.typed").load().orderBy("_scn").toArrow().to_pylist()
    new = {name: found[1][name] for name in values}
    new["y"] = bytes(new["y"])
    assert new == values
    old = {name: found[0][name] for name in values}
    assert old == {name: values[name] if i < 4 else None for i, name in enumerate(values)}
    with pytest.raises(Exception, match=r"public\.nobody"):
        reader.option("table", "public.nobody").load()


def test_a_range_is_read_in_slices_that_lose_nothing(spark: SparkSession, log: Log) -> None:
    log.write(TABLE, " | ".join(f"+I({key},a)" for key in range(1, 31)))
    register_source(spark)
    frame = (
        spark.read.format("headrace")
        .option("path", str(log.folder))
        .option("table", "public.t")
        .option("from_scn", "50")
        .option("to_scn", "250")
        .option("slices", "4")
        .load()
    )
    assert frame.rdd.getNumPartitions() == 4
    assert sorted(row.k for row in frame.collect()) == list(range(6, 26))


def test_options_are_checked(log: Log) -> None:
    with pytest.raises(ConfigError, match="path"):
        HeadraceSource({}).schema()
    with pytest.raises(ConfigError, match="number"):
        HeadraceSource({"path": str(log.folder), "table": "public.t", "from_scn": "soon"}).schema()


def log_refs(log: Log, after_scn: int) -> Any:
    from headrace.changelog.reader import ChangeLogReader

    return list(ChangeLogReader(log.folder).refs(after_scn))


def pieces(log: Log, count: int, *, finished: bool = True) -> None:
    """Append one transaction in several blocks."""
    scn = log.following
    for number in range(count):
        last = finished and number == count - 1
        parsed = parse_history(f"+I({number + 100},a)", scn)
        rows = [(scn, number, op, cells) for _, _, op, cells in parsed.rows]
        body = Body(log.registry.put(TABLE), TABLE.table, change_batch(TABLE, rows))
        index = transaction_index([(scn, 1, 1, 1, ORIGIN_LOG, int(last))])
        log.writer.append(Block(index, (body,), (), scn if last else log.scn))
    log.scn = scn
    log.writer.sync()
