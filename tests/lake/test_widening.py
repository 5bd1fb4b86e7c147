"""Columns take wider types without any value being written anew, where every reader can still read them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import IncompatibleSchemaChange
from headrace.fold import fold
from headrace.lake.commit import put_commit
from headrace.lake.evolution import evolve_actions
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.testing.notation import change_batch
from tests.lake.local_table import LocalTable, keep_files_apart
from tests.places import local

INFINITY = pa.array([2**31 - 1, -(2**31)], pa.int32()).view(pa.date32())
LATE = pa.array([20_000 * 365], pa.int32()).view(pa.date32())


def of(type_: pa.DataType) -> TableSchema:
    columns = (Column("k", pa.int64(), "bigint", nullable=False), Column("d", type_, "x"))
    return TableSchema(TableId("public", "t"), columns, ("k",), KeyCheck.IMMEDIATE)


DATES, TIMES = of(pa.date32()), of(pa.timestamp("us"))


def with_dates(folder: Path, *batches: pa.Array) -> LocalTable:
    """Return a table with a row for each date, batch by batch."""
    table = LocalTable(folder, DATES)
    for scn, days in enumerate(batches, 1):
        rows = change_batch(DATES, [(scn, n, "+I", (10 * scn + n, None)) for n in range(len(days))])
        rows = rows.set_column(rows.schema.get_field_index("d"), rows.schema.field("d"), days)
        table.apply(fold(DATES, [rows]), scn)
    return table


def test_a_column_of_infinite_dates_takes_no_times(tmp_path: Path) -> None:
    """Spark would fail at its files, and so would every batch of ours."""
    table = with_dates(tmp_path, pa.array([dt.date(2026, 3, 1)]), INFINITY)
    with pytest.raises(IncompatibleSchemaChange, match=r"public\.t\.d .* infinite dates") as caught:
        evolve_actions(table.table.snapshot(), TIMES)
    assert "copy it again" in caught.value.next_step


def test_an_infinite_date_of_a_row_that_died_is_still_in_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_files_apart(monkeypatch, rows=2, size=100)
    days = pa.concat_arrays([pa.array([dt.date(2026, 3, 1)] * 8), INFINITY[:1]])
    table = with_dates(tmp_path, days)
    table.apply(fold(DATES, [change_batch(DATES, [(2, 0, "-D", (18,))])]), 2)
    assert table.vectors() == 1
    with pytest.raises(IncompatibleSchemaChange):
        evolve_actions(table.table.snapshot(), TIMES)


def test_all_other_dates_become_times(tmp_path: Path) -> None:
    plain = pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)])
    table = with_dates(tmp_path, plain, LATE, pa.nulls(2, pa.date32()))
    snapshot = table.table.snapshot()
    put_commit(tmp_path, snapshot.version + 1, evolve_actions(snapshot, TIMES))
    times = table.table.snapshot().to_table()["d"].combine_chunks().cast(pa.int64())
    days = [-719_162, 2_932_896, LATE[0].value]
    assert sorted(times.drop_null().to_pylist()) == [day * 86_400_000_000 for day in days]


def test_a_file_whose_bounds_say_enough_is_not_looked_into(tmp_path: Path) -> None:
    table = with_dates(tmp_path, pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31)]))
    snapshot = table.table.snapshot()
    local(snapshot.files[0].path).unlink()
    assert evolve_actions(snapshot, TIMES)
