"""The hash of a certificate is one of rows, not of how Arrow holds them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.watermark.digest import rows_digest

SCHEMA = pa.schema(
    {
        "a": pa.int32(),
        "b": pa.string(),
        "c": pa.bool_(),
        "d": pa.decimal128(10, 2),
        "e": pa.timestamp("us", tz="UTC"),
        "f": pa.binary(),
        "g": pa.float64(),
        "h": pa.date32(),
    }
)
MOMENT = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
LATER = MOMENT + dt.timedelta(microseconds=1)
FULL = (1, "x", True, Decimal("1.25"), MOMENT, b"y", 0.5, dt.date(2026, 1, 2))
OTHER = (2, "longer", False, Decimal("-9.99"), LATER, b"", -0.0, dt.date(1969, 1, 2))
NONE = (None,) * len(SCHEMA)


def batch(*rows: tuple[Any, ...]) -> pa.RecordBatch:
    columns = [
        pa.array(list(cells), field.type)
        for cells, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)
    ]
    return pa.record_batch(columns, schema=SCHEMA)


def test_a_slice_is_hashed_like_its_own_rows() -> None:
    whole = batch(OTHER, FULL, NONE, OTHER, FULL)
    assert rows_digest(whole.slice(1, 3)) == rows_digest(batch(FULL, NONE, OTHER))
    assert rows_digest(whole.slice(1, 1)) == rows_digest(batch(FULL))
    assert rows_digest(whole.slice(5)) != rows_digest(whole)


def test_what_lies_under_a_null_is_not_hashed() -> None:
    """A masked array keeps the bytes of what it hides."""
    rows = batch(FULL, OTHER)
    seen = pa.array([True, False]).buffers()[1]
    hidden = [
        pa.Array.from_buffers(column.type, 2, [seen, *column.buffers()[1:]])
        for column in rows.columns
    ]
    assert rows_digest(pa.record_batch(hidden, schema=SCHEMA)) == rows_digest(batch(FULL, NONE))


@pytest.mark.parametrize("place", range(len(SCHEMA)))
def test_any_cell_changes_it_and_so_does_any_null(place: int) -> None:
    changed = tuple(OTHER[i] if i == place else cell for i, cell in enumerate(FULL))
    lost = tuple(None if i == place else cell for i, cell in enumerate(FULL))
    digests = {rows_digest(batch(row)) for row in (FULL, changed, lost)}
    assert len(digests) == 3


def test_where_a_text_ends_counts_and_so_do_order_and_number_of_rows() -> None:
    def texts(*cells: str | None) -> pa.RecordBatch:
        return pa.record_batch([pa.array(list(cells), pa.string())], ["t"])

    found = [
        texts("ab", "c"),
        texts("a", "bc"),
        texts("abc", ""),
        texts("abc", None),
        texts("c", "ab"),
        texts("abc"),
    ]
    assert len({rows_digest(rows) for rows in found}) == len(found)
