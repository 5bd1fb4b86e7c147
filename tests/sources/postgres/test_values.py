"""Text of cells and Arrow values, there and back, without a server."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import UndecodableValue
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.sources.postgres.types import arrow_type
from headrace.sources.postgres.values import build_column, render_text
from tests.requirements import req

DATE_MIN, DATE_MAX = -2_440_588 + 38, 2_145_031_948  # 4713 BC, 5874897 AD: the server's own range


def table(type_: pa.DataType) -> TableSchema:
    return TableSchema(TableId("s", "t"), (Column("c", type_, "x"),), (), KeyCheck.NONE)


def there_and_back(column: pa.Array) -> None:
    texts = render_text(column)
    again = build_column(table(column.type), 0, [t.encode() for t in texts])
    assert again.type == column.type
    assert again.equals(column)


@given(st.lists(st.integers(DATE_MIN, DATE_MAX), max_size=20))
@req("T1")
def test_dates(days: list[int]) -> None:
    there_and_back(pa.array(days, pa.int32()).cast(pa.date32()))


@given(st.lists(st.integers(-210_866_803_200_000_000, 9_223_371_331_200_000_000 - 1), max_size=20))
@req("T1")
def test_timestamps(micros: list[int]) -> None:
    for type_ in (pa.timestamp("us"), pa.timestamp("us", tz="UTC")):
        there_and_back(pa.array(micros, pa.int64()).cast(type_))


@given(st.lists(st.floats(allow_nan=False), max_size=20))
@req("T1")
def test_doubles(values: list[float]) -> None:
    there_and_back(pa.array(values, pa.float64()))


@given(st.lists(st.floats(allow_nan=False, width=32), max_size=20))
@req("T1")
def test_reals(values: list[float]) -> None:
    there_and_back(pa.array(values, pa.float32()))


@given(st.lists(st.decimals("-99999999.99", "99999999.99", places=2), max_size=20))
@req("T1")
def test_decimals(values: list[object]) -> None:
    there_and_back(pa.array(values, pa.decimal128(10, 2)))


@given(st.lists(st.binary(max_size=20), max_size=10), st.lists(st.text(max_size=20), max_size=10))
def test_bytes_and_text(blobs: list[bytes], texts: list[str]) -> None:
    there_and_back(pa.array(blobs, pa.binary()))
    there_and_back(pa.array(texts, pa.string()))


def test_booleans_and_integers() -> None:
    there_and_back(pa.array([True, False]))
    for type_ in (pa.int16(), pa.int32(), pa.int64()):
        edge = 2 ** (type_.bit_width - 1)
        there_and_back(pa.array([-edge, 0, edge - 1], type_))


def test_null_is_null_in_every_type() -> None:
    for type_ in (pa.bool_(), pa.binary(), pa.string(), pa.date32(), pa.timestamp("us"), pa.int16(),
                  pa.float32(), pa.decimal128(5, 2)):  # fmt: skip
        assert build_column(table(type_), 0, [None, None]).null_count == 2


@pytest.mark.parametrize(
    ("type_", "cell"),
    [
        (pa.bool_(), b"true"),
        (pa.int16(), b"32768"),
        (pa.int32(), b""),
        (pa.decimal128(5, 2), b"NaN"),
        (pa.decimal128(5, 2), b"1.234"),
        (pa.decimal128(5, 2), b"1234.00"),
        (pa.binary(), b"abc"),
        (pa.binary(), b"\\x0"),
        (pa.date32(), b"Infinity"),
        (pa.date32(), b"2024-02-30"),
        (pa.timestamp("us"), b"294247-01-10 04:00:54.775807"),
        (pa.timestamp("us"), b"294276-12-31 23:59:59.999999"),
        (pa.string(), b"\xff"),
    ],
)
def test_what_has_no_exact_place_names_table_column_and_length_only(
    type_: pa.DataType, cell: bytes
) -> None:
    good = {pa.string(): b"ok"}.get(type_)
    with pytest.raises(UndecodableValue, match=rf"s\.t\.c: a value of {len(cell)} bytes") as caught:
        build_column(table(type_), 0, [None, *([good] if good else []), cell])
    if cell.isascii() and any(c in b"0123456789" for c in cell):
        assert cell.decode() not in str(caught.value)


@pytest.mark.parametrize(
    ("precision", "scale", "expected"),
    [
        (10, 2, pa.decimal128(10, 2)),
        (38, 0, pa.decimal128(38, 0)),
        (39, 0, pa.string()),
        (3, 5, pa.string()),
        (3, -2, pa.string()),
        (1000, 1000, pa.string()),
    ],
)
def test_numeric_is_a_decimal_exactly_when_arrow_has_one(
    precision: int, scale: int, expected: pa.DataType
) -> None:
    modifier = (precision << 16 | scale & 0x7FF) + 4
    assert arrow_type(1700, modifier) == expected
    assert arrow_type(1700, -1) == pa.string()
