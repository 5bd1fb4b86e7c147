from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import UnsupportedTableFeature
from headrace.lake import CorruptTable, DeltaTable
from headrace.lake.delta_types import arrow_schema, arrow_type, delta_type, schema_string
from tests.lake.handmade import HandmadeTable, metadata, protocol

UTC = dt.UTC
ALL_TYPES = pa.schema(
    [
        ("text", pa.string()),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("whole", pa.int32()),
        ("big", pa.int64()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("flag", pa.bool_()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("instant", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("money", pa.decimal128(12, 2)),
        ("huge", pa.decimal128(38, 10)),
    ]
)
ROW = {
    "text": "größe",
    "tiny": -7,
    "small": -300,
    "whole": 70_000,
    "big": 2**40,
    "single": 1.5,
    "double": 1e-300,
    "flag": True,
    "bytes": b"\x00\xff",
    "day": dt.date(1, 1, 1),
    "instant": dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    "local": dt.datetime.fromisoformat("1582-10-04T01:02:03.000004"),
    "money": Decimal("-12345.60"),
    "huge": Decimal("1234567890123456789.0123456789"),
}
EMPTY = dict.fromkeys(ROW)


@pytest.fixture
def table(tmp_path: Path) -> HandmadeTable:
    return HandmadeTable(tmp_path / "orders")


def read(table: HandmadeTable, columns: list[str] | None = None) -> pa.Table:
    return DeltaTable(table.path).snapshot().to_table(columns)


def test_every_type_comes_out_with_its_schema_and_values(table):
    table.create(pa.Table.from_pylist([ROW, EMPTY], schema=ALL_TYPES))
    content = read(table)
    assert content.schema.equals(ALL_TYPES)
    assert content.to_pylist() == [ROW, EMPTY]


def test_timestamps_as_spark_stores_them_keep_their_microseconds(table):
    rows = pa.Table.from_pylist([ROW, EMPTY], schema=ALL_TYPES)
    add = table.file(rows, use_deprecated_int96_timestamps=True)
    table.commit(protocol(), metadata(ALL_TYPES), add)
    content = read(table)
    assert content.schema.equals(ALL_TYPES)
    assert content.to_pylist() == [ROW, EMPTY]


def test_types_survive_both_directions():
    for field in ALL_TYPES:
        assert arrow_type(delta_type(field.type)) == field.type
    assert arrow_schema(schema_string(ALL_TYPES), "t").equals(ALL_TYPES)
    with pytest.raises(ValueError, match="no Delta type"):
        delta_type(pa.time64("us"))


def test_batches_are_bounded_and_columns_can_be_chosen(table):
    rows = pa.table({"id": pa.array(range(150_000)), "name": pa.array(["x"] * 150_000)})
    table.create(rows)
    batches = list(DeltaTable(table.path).snapshot().batches(["id"]))
    assert [batch.schema.names for batch in batches] == [["id"]] * len(batches)
    assert max(batch.num_rows for batch in batches) <= 65_536
    assert sum(batch.num_rows for batch in batches) == 150_000


def test_a_column_younger_than_the_file_is_null(table):
    table.create(pa.table({"id": [1]}))
    wider = pa.schema([("id", pa.int64()), ("name", pa.string())])
    table.commit(metadata(wider), table.file(pa.table({"id": [2], "name": ["b"]})))
    assert read(table).to_pylist() == [{"id": 1, "name": None}, {"id": 2, "name": "b"}]
    assert read(table, ["name"]).to_pylist() == [{"name": None}, {"name": "b"}]


@pytest.mark.parametrize(
    ("old", "new", "value", "expected"),
    [
        (pa.int8(), pa.int16(), -5, -5),
        (pa.int16(), pa.int32(), -300, -300),
        (pa.int32(), pa.int64(), 70_000, 70_000),
        (pa.float32(), pa.float64(), 0.5, 0.5),
        (pa.int32(), pa.float64(), 3, 3.0),
        (pa.int32(), pa.decimal128(12, 2), 3, Decimal("3.00")),
        (pa.decimal128(5, 2), pa.decimal128(12, 4), Decimal("1.50"), Decimal("1.5000")),
        (
            pa.date32(),
            pa.timestamp("us"),
            dt.date(1969, 12, 31),
            dt.datetime.fromisoformat("1969-12-31"),
        ),
    ],
)
def test_a_file_of_a_narrower_type_is_widened(table, old, new, value, expected):
    table.create(pa.table({"x": pa.array([value, None], old)}))
    table.commit(
        protocol(3, 7, ["typeWidening", "timestampNtz"]), metadata(pa.schema([("x", new)]))
    )
    assert read(table).to_pylist() == [{"x": expected}, {"x": None}]
    assert read(table).schema.field("x").type == new


def test_a_file_of_another_type_is_named(table):
    table.create(pa.table({"x": ["not a number"]}))
    table.commit(metadata(pa.schema([("x", pa.int64())])))
    with pytest.raises(CorruptTable, match="does not fit"):
        read(table)


def test_partition_columns_come_from_the_log(table):
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("day", pa.date32()),
            ("money", pa.decimal128(10, 2)),
            ("at", pa.timestamp("us", tz="UTC")),
            ("local", pa.timestamp("us")),
            ("flag", pa.bool_()),
        ]
    )
    values = {
        "day": "2024-02-29",
        "money": "1.50",
        "at": "2024-02-29T10:11:12.000013Z",
        "local": "2024-02-29 10:11:12.5",
        "flag": "true",
    }
    parts = ["day", "money", "at", "local", "flag"]
    table.commit(
        protocol(),
        metadata(schema, partition=parts),
        table.file(pa.table({"id": [1, 2]}), name="day=2024-02-29/a b%.parquet", partition=values),
        table.file(pa.table({"id": [3]}), partition=dict.fromkeys(parts) | {"day": ""}),
    )
    rows = sorted(read(table).to_pylist(), key=lambda row: row["id"])
    assert rows[0] == {
        "id": 1,
        "day": dt.date(2024, 2, 29),
        "money": Decimal("1.50"),
        "at": dt.datetime(2024, 2, 29, 10, 11, 12, 13, UTC),
        "local": dt.datetime.fromisoformat("2024-02-29T10:11:12.500"),
        "flag": True,
    }
    assert rows[2] == {"id": 3} | dict.fromkeys(parts)
    assert read(table, ["day"]).num_rows == 3


def test_a_file_in_another_store_is_refused(table):
    add = {"path": "s3://bucket/part.parquet", "partitionValues": {}, "size": 1}
    table.commit(protocol(), metadata(ALL_TYPES), {"add": add})
    with pytest.raises(UnsupportedTableFeature, match="another store"):
        read(table)


def test_an_absolute_path_is_followed(table, tmp_path):
    elsewhere = HandmadeTable(tmp_path / "elsewhere")
    add = elsewhere.file(pa.table({"id": [1]}), name="part.parquet")["add"]
    path = (elsewhere.path / "part.parquet").as_uri()
    schema = pa.schema([("id", pa.int64())])
    table.commit(protocol(), metadata(schema), {"add": {**add, "path": path}})
    assert read(table).to_pylist() == [{"id": 1}]


@pytest.mark.parametrize("kind", ["variant", {"type": "array", "elementType": "string"}])
def test_a_type_we_lack_is_refused_by_column(kind):
    text = '{"type":"struct","fields":[{"name":"tags","type":%s,"nullable":true,"metadata":{}}]}'
    with pytest.raises(UnsupportedTableFeature, match="tags"):
        arrow_schema(text % json.dumps(kind), "t")


def test_a_schema_that_does_not_read_is_named():
    with pytest.raises(CorruptTable, match="schema"):
        arrow_schema('{"fields": [{"name": "a"}]}', "t")
