"""Where keys lie: the same places whatever their type, however the rows lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.lake import probe
from headrace.lake.commit import put_commit
from headrace.lake.data_writer import write_rows
from headrace.lake.delta_log import DeltaTable
from headrace.lake.evolution import create_actions
from headrace.lake.probe import KeySet, places_of
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from tests.requirements import req

START = datetime(2026, 1, 1, tzinfo=UTC)
KINDS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "int16": (pa.int16(), lambda n: n),
    "int64": (pa.int64(), lambda n: n * 2**40),
    "date": (pa.date32(), lambda n: (START + timedelta(days=n)).date()),
    "instant": (pa.timestamp("us", tz="UTC"), lambda n: START + timedelta(microseconds=n)),
    "text": (pa.string(), lambda n: f"k{n}"),
    "decimal": (pa.decimal128(12, 2), lambda n: Decimal(n) / 4),
    "double": (pa.float64(), lambda n: -0.0 if n == 0 else n / 8),
    "bool": (pa.bool_(), lambda n: n % 2 == 0),
}
numbers = st.lists(st.integers(-12, 12), max_size=30)


def column(kind: str, values: Sequence[int | None]) -> pa.Array:
    type_, make = KINDS[kind]
    return pa.array([None if n is None else make(n) for n in values], type_)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ordered", [True, False])
@settings(max_examples=25)
@given(data=st.data())
@req("P18")
def test_found_are_the_rows_that_have_a_key(kind: str, ordered: bool, data: st.DataObject) -> None:
    wanted = data.draw(numbers)
    held: list[int | None] = list(data.draw(numbers))
    if ordered:
        held.sort()
    elif data.draw(st.booleans()):
        held.append(None)
    cut = data.draw(st.integers(0, len(held)))
    rows = pa.table({"k": pa.chunked_array([column(kind, held[:cut]), column(kind, held[cut:])])})
    found = KeySet(pa.table({"k": column(kind, wanted)})).found_in(rows)
    keys = set(column(kind, wanted).to_pylist())
    assert found.tolist() == [
        place for place, value in enumerate(rows["k"].to_pylist()) if value in keys
    ]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(data=st.data())
@req("P18")
def test_every_column_of_a_key_counts(kind: str, data: st.DataObject) -> None:
    pairs = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20)
    wanted, held = data.draw(pairs), data.draw(pairs)

    def table(of: list[tuple[int, int]]) -> pa.Table:
        first, second = [a for a, _ in of], [b for _, b in of]
        return pa.table({"a": column(kind, first), "b": column("text", second)})

    found = KeySet(table(wanted)).found_in(table(held))
    keys = {tuple(row.values()) for row in table(wanted).to_pylist()}
    assert found.tolist() == [
        place for place, row in enumerate(table(held).to_pylist()) if tuple(row.values()) in keys
    ]


def test_zeros_with_different_signs_are_different_keys() -> None:
    found = KeySet(pa.table({"k": [0.0]})).found_in(pa.table({"k": [-0.0, 0.0, 1.0]}))
    assert found.tolist() == [1]


@pytest.mark.parametrize("kind", ["int64", "text"])
@pytest.mark.parametrize("at_once", [1, 25, 10_000])
def test_files_are_looked_through_one_by_one_or_together(
    tmp_path: Path, kind: str, at_once: int
) -> None:
    schema = TableSchema(
        TableId("public", "t"),
        (Column("k", KINDS[kind][0], kind, nullable=False),),
        ("k",),
        KeyCheck.IMMEDIATE,
    )
    put_commit(tmp_path, 0, create_actions(schema, vectors=True))
    adds = []
    for begin in (0, 40, 20):
        rows = pa.table({"k": column(kind, list(range(begin, begin + 20)))})
        adds += write_rows(tmp_path, rows, ["k"])
    put_commit(tmp_path, 1, [{"add": add} for add in adds])
    snapshot = DeltaTable(tmp_path).snapshot()
    wanted = pa.table({"k": column(kind, [3, 47, 48, 99])})
    with mock.patch.object(probe, "_AT_ONCE", at_once):
        found = places_of(snapshot, KeySet(wanted))
    shown = {
        index: pa.Table.from_batches(snapshot.files[index].batches(snapshot.schema))
        .take(pa.array(places))["k"]
        .to_pylist()
        for index, places in found.items()
    }
    make = KINDS[kind][1]
    assert sorted(shown.values()) == sorted([[make(3)], [make(47), make(48)]])
    assert all(places.dtype == np.int64 for places in found.values())
