"""Every supported type: the log's rendering and the chunk's are the same Arrow bytes, and the exact value."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import UndecodableValue
from headrace.model.rowkey import encode_rows
from headrace.model.schema import TableId
from tests.fixtures_postgres import Sql, name_of
from tests.requirements import req
from tests.sources.postgres.hostile import HOSTILE
from tests.sources.postgres.support import opened

pytestmark = pytest.mark.postgres

T = TableId("public", "t")

SETUP = (
    "CREATE TYPE mood AS ENUM ('sad', 'it''s ok')",
    "CREATE TYPE point2 AS (x int, y text)",
    "CREATE DOMAIN cents AS numeric(12,2) CHECK (VALUE >= 0)",
    "CREATE DOMAIN price AS cents",
    "CREATE DOMAIN label AS varchar(20)",
)

# Type, the Arrow type that must hold it, and values as SQL literals.
CASES: list[tuple[str, pa.DataType, list[str]]] = [
    ("boolean", pa.bool_(), ["'t'", "'f'"]),
    ("smallint", pa.int16(), ["-32768", "32767", "0"]),
    ("integer", pa.int32(), ["-2147483648", "2147483647"]),
    ("bigint", pa.int64(), ["-9223372036854775808", "9223372036854775807"]),
    ("real", pa.float32(), ["'1e-45'", "0.1", "'-0'", "'NaN'", "'Infinity'", "16777217"]),
    (
        "double precision",
        pa.float64(),
        ["'4.9e-324'", "0.1", "'-0'", "'NaN'", "'-Infinity'", "1e22"],
    ),
    ("numeric(10,2)", pa.decimal128(10, 2), ["12.3", "-99999999.99", "0"]),
    ("numeric(38,37)", pa.decimal128(38, 37), ["'1.0000000000000000000000000000000000001'"]),
    ("numeric(39,2)", pa.string(), ["12.3"]),
    ("numeric(3,5)", pa.string(), ["0.00123"]),
    ("numeric(3,-2)", pa.string(), ["12300"]),
    ("numeric", pa.string(), ["12.300", "'NaN'", "'Infinity'", "1e100", "1e-30"]),
    ("text", pa.string(), ["''", "'ä€😀'", "E'a\\nb\\\\\"'", "' padded '"]),
    ("varchar(20)", pa.string(), ["'a '"]),
    ("char(5)", pa.string(), ["'ab'", "''"]),
    ('"char"', pa.string(), ["'x'"]),
    ("name", pa.string(), ["'some name'"]),
    ("bytea", pa.binary(), ["'\\x00ff5c'", "''"]),
    ("date", pa.date32(), ["'2024-02-29'", "'0001-01-01'", "'0044-03-15 BC'", "'12024-01-01'"]),
    ("time", pa.string(), ["'24:00:00'", "'12:34:56.789'"]),
    ("timetz", pa.string(), ["'12:34:56+05:30'"]),
    (
        "timestamp",
        pa.timestamp("us"),
        ["'2024-02-29 12:34:56.789'", "'1969-12-31 23:59:59.999999'", "'0044-03-15 01:02:03 BC'"],
    ),
    (
        "timestamptz",
        pa.timestamp("us", tz="UTC"),
        ["'2024-02-29 12:34:56.7+09'", "'12024-01-01 00:00:00.000001+00'", "'0001-01-01 BC'"],
    ),
    ("timestamp(0)", pa.timestamp("us"), ["'2024-02-29 12:34:56.789'"]),
    ("interval", pa.string(), ["'1 year 2 mons -3 days 04:05:06.789'", "'-1 sec'"]),
    ("uuid", pa.string(), ["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"]),
    ("json", pa.string(), ['\'{"b": 1,  "a": [1.0, null]}\'']),
    ("jsonb", pa.string(), ['\'{"b": 1,  "a": [1.0, null]}\'']),
    ("integer[]", pa.string(), ["'{1,NULL,3}'", "'[0:1]={1,2}'", "'{}'"]),
    ("text[]", pa.string(), ["ARRAY['a,b', 'NULL', '\"', NULL]"]),
    ("double precision[]", pa.string(), ["ARRAY[0.1, 'NaN', 1e300]"]),
    ("timestamptz[]", pa.string(), ["ARRAY['2024-01-01 00:00:00+09'::timestamptz]"]),
    ("bytea[]", pa.string(), ["ARRAY['\\x00ff'::bytea]"]),
    ("mood", pa.string(), ["'sad'", "'it''s ok'"]),
    ("point2", pa.string(), ["ROW(1, 'a,b')"]),
    ("price", pa.decimal128(12, 2), ["12.3"]),
    ("label", pa.string(), ["'x'"]),
    ("inet", pa.string(), ["'10.0.0.1/8'"]),
    ("bit(3)", pa.string(), ["B'101'"]),
    ("money", pa.string(), ["'1234.5'"]),
    ("oid", pa.string(), ["4294967295"]),
    ("regclass", pa.string(), ["'public.t'::regclass"]),
    ("int4range", pa.string(), ["'[1,5)'"]),
    ("point", pa.string(), ["'(0.1,2)'"]),
    ("tsvector", pa.string(), ["'a fat cat'"]),
]


def _create(sql: Sql) -> None:
    sql(*SETUP)
    columns = ", ".join(f"c{n} {type_}" for n, (type_, _, _) in enumerate(CASES))
    sql(f"CREATE TABLE t (id serial PRIMARY KEY, {columns})")


def _insert(sql: Sql) -> None:
    deepest = max(len(values) for _, _, values in CASES)
    for place in range(deepest + 1):
        cells = [v[place] if place < len(v) else "NULL" for _, _, v in CASES]
        names = ", ".join(f"c{n}" for n in range(len(CASES)))
        sql(f"INSERT INTO t ({names}) VALUES ({', '.join(cells)})")


@req("T1")
def test_log_and_chunk_render_every_type_byte_for_byte_the_same(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    _create(sql)
    name = name_of(database)
    sql(*(f"ALTER DATABASE {name} SET {k} = {v}" for k, v in HOSTILE.items()))
    with opened(database, tmp_path) as log:
        _insert(sql)
        batches = [b.batch for block in log.collect().blocks for b in block.bodies]
        streamed = pa.Table.from_batches(batches).combine_chunks()
        reader = log.source.chunks()
        until = reader.upper_bound(T).key
        assert until is not None
        chunk = reader.read(T, None, until, 1000)
        whole = pa.Table.from_batches(list(reader.read_table(T).batches)).combine_chunks()
        reader.close()
        assert chunk.schema == log.schema(log.registry.put(chunk.schema))
        assert streamed.num_rows == chunk.rows.num_rows == whole.num_rows
        for number, (type_, arrow, _) in enumerate(CASES):
            column = f"c{number}"
            ours = [t.column(column) for t in (streamed, chunk.rows, whole)]
            assert {c.type for c in ours} == {arrow}, type_
            encoded = [encode_rows([c]).to_pylist() for c in ours]
            assert encoded[0] == encoded[1] == encoded[2], type_
            assert chunk.schema.column(column).source_type, type_


EXACT: list[tuple[str, str, Any]] = [
    ("numeric(10,2)", "12.3", Decimal("12.30")),
    ("double precision", "0.1", 0.1),
    ("bytea", "'\\x00ff'", b"\x00\xff"),
    ("date", "'2024-02-29'", dt.date(2024, 2, 29)),
    ("timestamptz", "'2024-01-01 09:00+09'", dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
    ("timestamp", "'2024-01-01 09:00'", dt.datetime(2024, 1, 1, 9)),  # noqa: DTZ001
    ("char(5)", "'ab'", "ab   "),
    ("numeric", "1.50", "1.50"),
    ("jsonb", "'{\"a\":1}'", '{"a": 1}'),
    ("interval", "'P1DT2H'", "1 day 02:00:00"),
    ("money", "1234.5::numeric::money", "$1,234.50"),
]


@pytest.mark.parametrize(("type_", "literal", "value"), EXACT)
def test_values_are_exact(
    database: str, sql: Sql, tmp_path: Path, type_: str, literal: str, value: Any
) -> None:
    sql(f"CREATE TABLE t (id int PRIMARY KEY, v {type_})")
    with opened(database, tmp_path) as log:
        sql(f"INSERT INTO t VALUES (1, {literal})")
        assert log.collect().changes("t") == [("+I", 1, value)]


@pytest.mark.parametrize(
    ("type_", "literal"),
    [
        ("timestamp", "'294276-12-31 23:59:59'"),
        ("timestamptz", "'294247-01-10 04:00:54.775807+00'"),
        ("numeric(10,2)", "'NaN'"),
    ],
)
def test_a_value_without_an_exact_place_is_a_named_error_and_is_not_shown(
    database: str, sql: Sql, tmp_path: Path, type_: str, literal: str
) -> None:
    sql(f"CREATE TABLE t (id int PRIMARY KEY, v {type_})")
    with opened(database, tmp_path) as log:
        sql(f"INSERT INTO t VALUES (1, {literal})")
        with pytest.raises(UndecodableValue, match=r"public\.t\.v") as caught:
            log.collect()
        assert "294276" not in str(caught.value)
        assert caught.value.next_step
        with pytest.raises(UndecodableValue, match=r"public\.t\.v"):
            log.source.chunks().read(T, None, ("1",), 10)
        # Nothing was acknowledged, so the same change comes again and stops capture again.
        log.reopen()
        with pytest.raises(UndecodableValue):
            log.collect()
