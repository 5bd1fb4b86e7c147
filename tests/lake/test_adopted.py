"""Files of a dump made elsewhere become the first version of a table, or are refused by name and leave nothing."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from headrace.errors import DumpUnfit
from headrace.lake import adopted, key_check
from headrace.lake.adopted import adopted_scn, put_adopted, write_adopted
from headrace.lake.commit import CommitConflict
from headrace.lake.delta_log import DeltaTable
from headrace.lake.dump_files import DumpFiles
from headrace.lake.key_check import KeysOnce
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from tests.requirements import req

ORDERS = TableSchema(
    TableId("public", "orders"),
    (
        Column("id", pa.int64(), "bigint", nullable=False),
        Column("note", pa.string(), "text"),
        Column("amount", pa.decimal128(10, 2), "numeric(10,2)"),
        Column("at", pa.timestamp("us", tz="UTC"), "timestamp with time zone", nullable=False),
    ),
    ("id",),
    KeyCheck.IMMEDIATE,
)
AT = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
GOOD = pa.schema(
    [
        ("id", pa.int64()),
        ("note", pa.string()),
        ("amount", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)


def rows(*ids: int) -> pa.Table:
    columns = [[*ids], [f"n{i}" for i in ids], [Decimal(i) for i in ids], [AT for _ in ids]]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, GOOD, strict=True)], schema=GOOD)


def written(folder: Path, *tables: pa.Table) -> Path:
    folder.mkdir()
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number}.parquet")
    return folder


def taken_in(dump: Path, lake: Path, schema: TableSchema = ORDERS) -> Path:
    folder = lake / "public" / "orders"
    files = DumpFiles.open(dump, schema)
    spool = lake.parent / "spool"
    put_adopted(folder, write_adopted(folder, files, "app", 70, spool, vectors=True))
    return folder


def content(folder: Path) -> Counter[tuple[object, ...]]:
    return Counter(tuple(r.values()) for r in DeltaTable(folder).snapshot().to_table().to_pylist())


@req("D34")
def test_all_rows_and_their_position_are_one_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adopted, "FILE_ROWS", 3)
    dump = written(tmp_path / "dump", rows(5, 1), rows(4), rows(), rows(2, 3))
    (dump / "_SUCCESS").touch()
    folder = taken_in(dump, tmp_path / "lake")
    held = DeltaTable(folder).snapshot()
    assert held.version == 0
    assert (held.transactions, adopted_scn(held)) == ({"app": 70}, 70)
    assert len(held.files) == 2
    assert content(folder) == Counter(tuple(r.values()) for r in rows(1, 2, 3, 4, 5).to_pylist())


@req("D34")
def test_other_types_are_taken_where_no_value_can_change(tmp_path: Path) -> None:
    table = pa.table(
        {
            "at": pa.array([AT], pa.timestamp("ns", tz="Europe/Berlin")),
            "more": [1],
            "amount": pa.array([Decimal("1.5")], pa.decimal128(20, 5)),
            "note": pa.array(["x"]).dictionary_encode(),
            "id": pa.array([7], pa.int16()),
        }
    )
    (tmp_path / "dump").mkdir()
    feather.write_feather(table, tmp_path / "dump" / "a.arrow")
    files = DumpFiles.open(tmp_path / "dump", ORDERS)
    assert (files.rows, files.passed_over) == (1, ("more",))
    folder = taken_in(tmp_path / "dump", tmp_path / "lake")
    assert content(folder) == Counter({(7, "x", Decimal("1.50"), AT): 1})


def cast_to(name: str, type_: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        place = table.schema.get_field_index(name)
        return table.set_column(place, name, table[name].cast(type_))

    return change


def value_of(name: str, value: object, type_: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        place = table.schema.get_field_index(name)
        cells = [value, *table[name].to_pylist()[1:]]
        return table.set_column(place, name, pa.array(cells, type_))

    return change


UNFIT: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "missing column": (lambda t: t.drop_columns(["note"]), "lacks the column note"),
    "column twice": (lambda t: t.append_column("note", t["note"]), "does not read"),
    "text for a number": (cast_to("id", pa.string()), "has public.orders.id as string"),
    "number for text": (
        lambda t: t.set_column(1, "note", pa.array([1, 2], pa.int32())),
        "has public.orders.note as int32",
    ),
    "float for a decimal": (cast_to("amount", pa.float64()), "as double"),
    "time without its zone": (cast_to("at", pa.timestamp("us")), "as timestamp[us]"),
    "too many places": (
        value_of("amount", Decimal("987654.321"), pa.decimal128(12, 3)),
        "a value of public.orders.amount does not fit decimal(10,2)",
    ),
    "parts of microseconds": (
        value_of("at", 1_000_000_000_001, pa.timestamp("ns", tz="UTC")),
        "a value of public.orders.at does not fit timestamptz",
    ),
    "null in the key": (
        value_of("id", None, pa.int64()),
        "1 row is null in public.orders.id, which is part of the key",
    ),
    "null in a column that has none": (
        value_of("at", None, pa.timestamp("us", tz="UTC")),
        "1 row is null in public.orders.at, which allows none",
    ),
}


@req("D34")
@pytest.mark.parametrize("case", UNFIT)
def test_rows_of_another_table_are_refused_by_name_in_any_file(case: str, tmp_path: Path) -> None:
    change, message = UNFIT[case]
    lake = tmp_path / "lake"
    dump = written(tmp_path / "dump", rows(1, 2), change(rows(3, 4)))
    with pytest.raises(DumpUnfit) as refused:
        taken_in(dump, lake)
    assert "1.parquet" in str(refused.value)
    assert message in str(refused.value)
    assert refused.value.next_step
    # No row's value is told, and no file is left.
    assert "987654" not in repr(refused.value) + repr(refused.value.__cause__)
    assert not [path for path in lake.rglob("*") if path.is_file()]


@req("D34")
def test_a_key_that_comes_twice_is_refused_wherever_its_rows_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adopted, "FILE_ROWS", 2)
    monkeypatch.setattr(key_check, "_FILE_KEYS", 3)
    dump = written(tmp_path / "dump", rows(1, 2, 3, 4), rows(5, 6, 1, 7), rows(8, 1))
    with pytest.raises(DumpUnfit, match=r"public.orders has 2 rows with a key \(id\)"):
        taken_in(dump, tmp_path / "lake")
    assert not [path for path in (tmp_path / "lake").rglob("*") if path.is_file()]


@req("D34")
def test_a_table_without_a_key_keeps_every_copy_of_a_row(tmp_path: Path) -> None:
    bag = TableSchema(ORDERS.table, ORDERS.columns, (), KeyCheck.NONE)
    folder = taken_in(written(tmp_path / "dump", rows(1, 1), rows(1)), tmp_path / "lake", bag)
    assert list(content(folder).values()) == [3]


@pytest.mark.parametrize("files", [1, 7])
def test_every_repeated_key_is_counted_in_however_many_files(
    files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_check, "_FILE_KEYS", 1_000 // files)
    with KeysOnce(1_000, tmp_path) as keys:
        for begin in range(0, 1_000, 100):
            cells = [str(n % 900) for n in range(begin, begin + 100)]
            keys.add([pa.array(cells), pa.array([1] * 100)])
        assert keys.repeated() == 100
    assert not list(tmp_path.iterdir())


@req("D34")
def test_folders_that_are_no_dump_are_refused_by_name(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.mkdir()
    (dump / "_started").touch()
    for name, message in (
        ("", "holds no file"),
        ("a.csv", "is no file of a dump"),
        ("b.parquet", "does not read"),
    ):
        if name:
            (dump / name).write_bytes(b"id,note\n")
        with pytest.raises(DumpUnfit, match=message):
            DumpFiles.open(dump, ORDERS)
        if name:
            (dump / name).unlink()
    with pytest.raises(DumpUnfit, match="holds no file"):
        DumpFiles.open(tmp_path / "nowhere", ORDERS)
    (dump / "_delta_log").mkdir()
    with pytest.raises(DumpUnfit, match="is a Delta table"):
        DumpFiles.open(dump, ORDERS)


def test_a_table_that_came_meanwhile_stays_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    dump, lake = written(tmp_path / "dump", rows(1, 2)), tmp_path / "lake"
    folder = taken_in(dump, lake)
    files = sorted(folder.rglob("*"))
    with pytest.raises(CommitConflict):
        taken_in(dump, lake)
    assert sorted(folder.rglob("*")) == files
