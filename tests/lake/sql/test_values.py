"""Every type in every place of a warehouse, from the ends of its range: what goes in comes back bit for bit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import IncompatibleSchemaChange, TargetConflict
from headrace.fold import fold
from headrace.lake.sql.duckdb_file import DuckdbWarehouse
from headrace.lake.sql.session import Warehouse
from headrace.model.change import change_schema, pack_missing
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema, render_type
from tests.lake.sql.warehouses import EVERY_VALUE, apply, content, encoded, made
from tests.requirements import req

pytestmark = pytest.mark.postgres

I16, I32, I64 = 2**15, 2**31, 2**63
NAN, INF = float("nan"), float("inf")
# Year 4713 before Christ to 5874897: what PostgreSQL's dates can be, and both infinities.
DAYS = [0, -1, -2_440_588, 2_145_031_948, I32 - 1, -I32]
MICROSECONDS = [0, -1, 1, -210_866_803_200_000_000, 9_223_371_331_200_000_000, I64 - 1, -I64]
VALUES: dict[pa.DataType, Sequence[Any]] = {
    pa.bool_(): [True, False],
    pa.int16(): [0, I16 - 1, -I16],
    pa.int32(): [0, I32 - 1, -I32],
    pa.int64(): [0, I64 - 1, -I64],
    pa.float32(): [1.5, -INF, NAN, 1.401298464324817e-45, 3.4028234663852886e38],
    pa.float64(): [0.1, INF, NAN, 5e-324, -1.7976931348623157e308, 1 / 3],
    pa.string(): ["", "a", "A", "ä\n\t\\\"'", "\U0001f600" * 40, "NULL", "\\N"],
    pa.binary(): [b"", b"\x00", bytes(range(256)), b"\\x00"],
    pa.date32(): DAYS,
    pa.timestamp("us"): MICROSECONDS,
    pa.timestamp("us", tz="UTC"): MICROSECONDS,
    pa.decimal128(38, 10): [Decimal("1234567890123456789012345678.0123456789"), Decimal("-1E-10")],
    pa.decimal128(5, 0): [Decimal(0), Decimal(-99_999)],
    pa.decimal128(4, 4): [Decimal("0.0001"), Decimal("-0.9999")],
}


def cells_of(type_: pa.DataType) -> pa.Array:
    values = VALUES[type_]
    if pa.types.is_date32(type_):
        return pa.array(values, pa.int32()).view(type_)
    if pa.types.is_timestamp(type_):
        return pa.array(values, pa.int64()).view(type_)
    return pa.array(values, type_)


@pytest.fixture(params=EVERY_VALUE)
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    return made(request.param, request, tmp_path)


def changed(
    schema: TableSchema, scn: int, op: str, cells: Sequence[pa.Array], missing: Sequence[int] = ()
) -> pa.Table:
    """Return the folded form of one operation on each row."""
    count = len(cells[0])
    mask = [pack_missing(missing, len(schema.columns))] * count
    columns = [
        pa.array([scn] * count, pa.int64()),
        pa.array(range(count), pa.int32()),
        pa.array([op] * count),
        pa.array(mask, pa.binary()),
        *cells,
    ]
    return fold(schema, [pa.record_batch(columns, schema=change_schema(schema))])


def expect(warehouse: Warehouse, schema: TableSchema, cells: Sequence[pa.Array]) -> None:
    assert encoded(content(warehouse, schema)) == encoded(pa.table(list(cells), schema.names))


@req("C-18")
@pytest.mark.parametrize("type_", VALUES, ids=render_type)
def test_a_key_of_every_type_is_found_again(warehouse: Warehouse, type_: pa.DataType) -> None:
    """A patch finds the row by its key, lends its other cell, and a delete removes it."""
    columns = (Column("k", type_, "k"), Column("a", type_, "a"), Column("b", type_, "b"))
    schema = TableSchema(TableId("public", "t"), columns, ("k",), KeyCheck.IMMEDIATE)
    keys = cells_of(type_)
    turned, nulls = keys.take(list(range(len(keys)))[::-1]), pa.nulls(len(keys), type_)
    apply(warehouse, schema, changed(schema, 1, "+I", [keys, keys, nulls]), 1)
    expect(warehouse, schema, [keys, keys, nulls])
    apply(warehouse, schema, changed(schema, 2, "=U", [keys, nulls, turned], [1]), 2)
    expect(warehouse, schema, [keys, keys, turned])
    gone = [keys.slice(0, 1), nulls.slice(0, 1), nulls.slice(0, 1)]
    apply(warehouse, schema, changed(schema, 3, "-D", gone, [1, 2]), 3)
    expect(warehouse, schema, [keys.slice(1), keys.slice(1), turned.slice(1)])


@req("C50", "T15", "C-18")
def test_rows_without_key_are_told_apart_by_every_bit(warehouse: Warehouse) -> None:
    widest = max(len(values) for values in VALUES.values()) + 2
    columns, cells = [], []
    for number, type_ in enumerate(VALUES):
        columns.append(Column(f'c{number} "%s', type_, "x"))
        values = cells_of(type_)
        # Shorter lists end in nulls; the last two rows differ in the sign of a zero alone.
        nulls = pa.nulls(widest - len(values) - 2, type_)
        last = pa.array([0.0, -0.0], type_) if type_ == pa.float64() else pa.nulls(2, type_)
        cells.append(pa.concat_arrays([values, nulls, last]))
    schema = TableSchema(TableId('odd "place', "na;me"), tuple(columns), (), KeyCheck.NONE)
    twice = [pa.concat_arrays([cell, cell]) for cell in cells]
    thrice = [pa.concat_arrays([cell, cell, cell]) for cell in cells]
    apply(warehouse, schema, changed(schema, 1, "+I", thrice), 1)
    expect(warehouse, schema, thrice)
    apply(warehouse, schema, changed(schema, 2, "-D", twice), 2)
    expect(warehouse, schema, cells)
    minus_zero = [cell.slice(len(cell) - 1) for cell in cells]
    apply(warehouse, schema, changed(schema, 3, "-D", minus_zero), 3)
    expect(warehouse, schema, [cell.slice(0, len(cell) - 1) for cell in cells])


def lettered(schema: TableSchema, scn: int, operation: str, letters: str) -> pa.Table:
    cells = [pa.array([7] * len(letters), pa.int64()), pa.array(list(letters), pa.string())]
    return changed(schema, scn, operation, cells)


@pytest.mark.parametrize("name", ["rowid", "ROWID"])
def test_a_column_that_hides_duckdbs_own_loses_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    warehouse = DuckdbWarehouse(tmp_path / "file.duckdb")
    columns = (Column(name, pa.int64(), "x"), Column("v", pa.string(), "x"))
    schema = TableSchema(TableId("public", "t"), columns, (), KeyCheck.NONE)
    keyed = TableSchema(TableId("public", "keyed"), columns, (name,), KeyCheck.IMMEDIATE)
    with pytest.raises(IncompatibleSchemaChange, match="tells rows apart"):
        apply(warehouse, schema, lettered(schema, 1, "+I", "abc"), 1)
    apply(warehouse, keyed, lettered(keyed, 1, "+I", "a"), 1)
    # As a file has it that was made before such a column was refused.
    monkeypatch.setattr(type(warehouse.dialect), "check_names", lambda *_: None)
    apply(warehouse, schema, lettered(schema, 1, "+I", "abc"), 1)
    with pytest.raises(TargetConflict, match="more of its rows would go"):
        apply(warehouse, schema, lettered(schema, 2, "-D", "a"), 2)
    assert content(warehouse, schema).num_rows == 3


def test_infinite_dates_and_times_are_infinite_there_too(warehouse: Warehouse) -> None:
    types = [pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC")]
    columns = [Column(f"x{number}", type_, "x") for number, type_ in enumerate(types)]
    schema = TableSchema(TableId("public", "t"), tuple(columns), (), KeyCheck.NONE)
    cells = [cells_of(type_).slice(len(VALUES[type_]) - 2) for type_ in types]
    apply(warehouse, schema, changed(schema, 1, "+I", cells), 1)
    with warehouse.opened() as session:
        infinite = [
            session.rows(f"SELECT count(*) FROM public.t WHERE x{number} = '{sign}infinity'")
            for number in range(3)
            for sign in ("", "-")
        ]
    assert infinite == [[(1,)]] * 6


@req("T1")
def test_a_zero_that_changes_its_sign_is_written_in_a_key_and_elsewhere(
    warehouse: Warehouse,
) -> None:
    columns = (Column("k", pa.float64(), "float8"), Column("a", pa.float64(), "float8"))
    schema = TableSchema(TableId("public", "t"), columns, ("k",), KeyCheck.IMMEDIATE)
    rows = [pa.array([0.0, 1.0]), pa.array([-0.0, 0.0])]
    apply(warehouse, schema, changed(schema, 1, "+I", rows), 1)
    moved = pa.record_batch(
        [
            pa.array([2, 2, 2], pa.int64()),
            pa.array([0, 1, 2], pa.int32()),
            pa.array(["-U", "+U", "=U"]),
            pa.array([None, pack_missing([1], 2), None], pa.binary()),
            pa.array([0.0, -0.0, 1.0]),
            pa.array([-0.0, None, -0.0]),
        ],
        schema=change_schema(schema),
    )
    apply(warehouse, schema, fold(schema, [moved]), 2)
    expect(warehouse, schema, [pa.array([-0.0, 1.0]), pa.array([-0.0, -0.0])])


WIDER = [
    (pa.int16(), pa.int32()),
    (pa.int32(), pa.int64()),
    (pa.int32(), pa.float64()),
    (pa.float32(), pa.float64()),
    (pa.int64(), pa.decimal128(22, 2)),
    (pa.decimal128(5, 0), pa.decimal128(9, 3)),
]


@req("C06", "C30")
@pytest.mark.parametrize(("old", "new"), WIDER, ids=lambda type_: render_type(type_))
def test_a_wider_type_keeps_every_value(
    warehouse: Warehouse, old: pa.DataType, new: pa.DataType
) -> None:
    def of(type_: pa.DataType) -> TableSchema:
        columns = (Column("k", pa.string(), "text"), Column("x", type_, "x"))
        return TableSchema(TableId("public", "t"), columns, ("k",), KeyCheck.IMMEDIATE)

    values = cells_of(old)
    keys = pa.array([str(number) for number in range(len(values))])
    apply(warehouse, of(old), changed(of(old), 1, "+I", [keys, values]), 1)
    none = pa.array([], pa.string()), pa.array([], new)
    apply(warehouse, of(new), changed(of(new), 2, "+I", none), 2)
    expect(warehouse, of(new), [keys, values.cast(new)])


@req("C06")
def test_a_date_becomes_a_timestamp(warehouse: Warehouse) -> None:
    def of(type_: pa.DataType) -> TableSchema:
        columns = (Column("k", pa.string(), "text"), Column("x", type_, "x"))
        return TableSchema(TableId("public", "t"), columns, ("k",), KeyCheck.IMMEDIATE)

    days = pa.array([dt.date(2024, 2, 29), dt.date(1, 1, 1), None])
    keys = pa.array(["a", "b", "c"])
    apply(warehouse, of(pa.date32()), changed(of(pa.date32()), 1, "+I", [keys, days]), 1)
    later = of(pa.timestamp("us"))
    none = pa.array([], pa.string()), pa.array([], pa.timestamp("us"))
    apply(warehouse, later, changed(later, 2, "+I", none), 2)
    expect(warehouse, later, [keys, days.cast(pa.timestamp("us"))])
