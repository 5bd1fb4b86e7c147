from __future__ import annotations

import random
from decimal import Decimal
from hashlib import md5

import numpy as np
import pyarrow as pa
import pytest

from headrace.lake import digest
from headrace.lake.digest import RangeSums, cell_texts, digest_rows
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema


def texts(values: list, type_: pa.DataType) -> list[str | None]:
    # One row in front that a slice cuts off: arrays with an offset are the usual case.
    array = pa.array([*values[:1], *values], type_).slice(1)
    cells = cell_texts(array).to_pylist()
    return [cell.decode() if isinstance(cell, bytes) else cell for cell in cells]


@pytest.mark.parametrize(
    ("type_", "values", "expected"),
    [
        (pa.bool_(), [True, False, None], ["true", "false", None]),
        (pa.int16(), [-32768, 0, None], ["-32768", "0", None]),
        (pa.int64(), [2**63 - 1, -(2**63)], ["9223372036854775807", "-9223372036854775808"]),
        (pa.string(), ["", None, "größe"], ["", None, "größe"]),
        (pa.binary(), [b"", None, b"\x00\xff", b"a"], ["", None, "00ff", "61"]),
        (pa.float64(), [1.0, -0.0, None], ["3ff0000000000000", "8000000000000000", None]),
        (pa.float64(), [float("nan"), -float("nan")], ["7ff8000000000000"] * 2),
        (pa.float64(), [1e-300, float("-inf")], ["01a56e1fc2f8f359", "fff0000000000000"]),
        (pa.float32(), [1.5, float("nan")], ["3fc00000", "7fc00000"]),
        (
            pa.decimal128(12, 2),
            [Decimal("0.00"), Decimal("-0.01"), None, Decimal("1234567890.10")],
            ["0.00", "-0.01", None, "1234567890.10"],
        ),
        (pa.decimal128(38, 20), [Decimal("1E-20")], ["0.00000000000000000001"]),
        (pa.decimal128(38, 0), [Decimal("-" + "9" * 38)], ["-" + "9" * 38]),
        (pa.decimal128(5, 5), [Decimal("-0.00001")], ["-0.00001"]),
        (pa.date32(), [-719162, 0, None], ["-719162", "0", None]),
        (pa.timestamp("us"), [-1, 0, None], ["-1", "0", None]),
        (pa.timestamp("us", "UTC"), [253402300799999999], ["253402300799999999"]),
    ],
)
def test_text_of_every_type(type_, values, expected):
    assert texts(values, type_) == expected


def test_rendering_leaves_the_column_itself_alone():
    column = pa.array([float("nan"), -0.0])
    before = column.buffers()[1].to_pybytes()
    cell_texts(column)
    assert column.buffers()[1].to_pybytes() == before


def schema(key: tuple[str, ...] = ("id",)) -> TableSchema:
    columns = (Column("id", pa.int64(), "bigint"), Column("name", pa.string(), "text"))
    check = KeyCheck.IMMEDIATE if key else KeyCheck.NONE
    return TableSchema(TableId("public", "t"), columns, key, check)


def rows(*pairs: tuple[int | None, str | None]) -> pa.RecordBatch:
    ids, names = [p[0] for p in pairs], [p[1] for p in pairs]
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "name": pa.array(names, pa.string())})


def test_digests_are_of_the_text_form():
    digests = digest_rows(schema(), rows((7, "é"), (8, None)))
    assert digests.keys[0].tobytes() == md5(b"1:7").digest()
    assert digests.rows[0].tobytes() == md5("1:72:é".encode()).digest()
    assert digests.rows[1].tobytes() == md5(b"1:8N").digest()
    assert digests.ranges.tolist() == [md5(b"1:7").digest()[0], md5(b"1:8").digest()[0]]


def test_without_a_key_the_row_is_its_own_key():
    digests = digest_rows(schema(()), rows((7, "a")))
    assert digests.keys.tolist() == digests.rows.tolist()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1, ""), (1, None)),
        ((1, "N"), (1, None)),
        ((12, "3"), (1, "23")),
        ((1, "2:ab"), (1, "ab")),
    ],
)
def test_rows_that_look_alike_have_digests_of_their_own(one, other):
    both = digest_rows(schema(), rows(one, other)).rows
    assert both[0].tobytes() != both[1].tobytes()


def test_no_rows_have_no_digests():
    assert len(digest_rows(schema(), rows())) == 0
    sums = RangeSums()
    sums.add(digest_rows(schema(), rows()))
    assert sums.rows == 0


def test_rows_are_rendered_in_slices_of_bounded_size(monkeypatch):
    batch = rows(*((i, "x" * 1000) for i in range(500)))
    whole = digest_rows(schema(), batch)
    monkeypatch.setattr(digest, "_SLICE_BYTES", 20_000)
    assert len(list(digest._slices(batch))) > 20
    assert (digest_rows(schema(), batch).rows == whole.rows).all()


def test_sums_are_exact_and_blind_to_order():
    pairs = [(i, f"row {i % 50}") for i in range(5_000)]
    digests = digest_rows(schema(), rows(*pairs))
    sums = RangeSums()
    sums.add(digests)
    expected = [0] * 256
    for key, row in zip(digests.keys, digests.rows, strict=True):
        expected[key[0]] += int.from_bytes(row.tobytes()[:8], "big") >> 4
    assert sums.sums == expected
    assert sums.rows == 5_000
    shuffled = RangeSums()
    random.Random(1).shuffle(pairs)
    for start in range(0, 5_000, 700):
        shuffled.add(digest_rows(schema(), rows(*pairs[start : start + 700])))
    assert sums.differing(shuffled) == []


def test_weights_add_and_take_away():
    three = digest_rows(schema(()), rows((1, "a"), (1, "a"), (2, "b")))
    plain, weighted = RangeSums(), RangeSums()
    plain.add(three)
    pair = digest_rows(schema(()), rows((1, "a"), (2, "b"), (3, "c")))
    weighted.add(pair, np.array([4, 1, 1]))
    weighted.add(pair, np.array([-2, 0, -1]))
    assert plain.differing(weighted) == []
    weighted.add(pair.pick(np.array([True, False, False])))
    assert plain.differing(weighted) == [pair.ranges[0]]


def test_one_changed_bit_differs_in_its_range_only():
    one, other = RangeSums(), RangeSums()
    one.add(digest_rows(schema(), rows((1, "a"), (2, "b"))))
    changed = digest_rows(schema(), rows((1, "a"), (2, "B")))
    other.add(changed)
    assert one.differing(other) == [changed.ranges[1]]
