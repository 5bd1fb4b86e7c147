"""What an SQLite file looks like to others, and what it refuses."""

from __future__ import annotations

import datetime as dt
import math
import sqlite3
from collections import Counter
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import (
    ConfigError,
    HeadraceError,
    IncompatibleSchemaChange,
    TargetConflict,
    TargetError,
    TargetUnwritable,
)
from headrace.fold import fold
from headrace.lake.sql import sqlite_file
from headrace.lake.sql.session import told
from headrace.lake.sql.sqlite_file import SqliteWarehouse
from headrace.lake.sql.tables import WarehouseTables
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.testing.notation import change_batch, parse_history, table_of
from tests.lake.sql.test_values import changed
from tests.lake.sql.warehouses import apply, content, counted

SCHEMA = table_of(2, name="orders")


@pytest.fixture
def warehouse(tmp_path: Path) -> SqliteWarehouse:
    return SqliteWarehouse(tmp_path / "folder" / "copy.sqlite")


def told_rows(warehouse: SqliteWarehouse, scn: int, history: str) -> None:
    """Apply one batch, as an output does."""
    folded = fold(SCHEMA, [change_batch(SCHEMA, parse_history(history, scn).rows)])
    with told(warehouse):
        apply(warehouse, SCHEMA, folded, scn)


def asked(warehouse: SqliteWarehouse, query: str) -> list[tuple[Any, ...]]:
    """Ask the file as any other program does."""
    with closing(sqlite3.connect(warehouse.path)) as connection:
        return connection.execute(query).fetchall()


def test_others_read_the_forms_that_the_page_names(warehouse: SqliteWarehouse) -> None:
    utc = dt.datetime(2026, 3, 1, 12, 0, 0, 5, dt.UTC)
    cells = {
        "flag": pa.array([True]),
        "price": pa.array([Decimal("12.50")], pa.decimal128(38, 2)),
        "nought": pa.array([-0.0]),
        "ratio": pa.array([float("nan")]),
        "day": pa.array([dt.date(2026, 3, 1)]),
        "at": pa.array([utc.replace(tzinfo=None)], pa.timestamp("us")),
        "at_utc": pa.array([utc], pa.timestamp("us", "UTC")),
        "raw": pa.array([b"\x00\xff"]),
    }
    columns = tuple(Column(name, cell.type, "x") for name, cell in cells.items())
    schema = TableSchema(TableId("public", "t"), columns, (), KeyCheck.NONE)
    apply(warehouse, schema, changed(schema, 1, "+I", list(cells.values())), 1)
    assert asked(warehouse, 'SELECT * FROM "public.t"') == [
        (
            *(1, "12.50", "-0.0", "NaN", "2026-03-01", "2026-03-01 12:00:00.000005"),
            *("2026-03-01 12:00:00.000005+00:00", b"\x00\xff"),
        )
    ]
    query = """SELECT date(day, '+1 day'), strftime('%H', at_utc), nought + 1 FROM "public.t" """
    assert asked(warehouse, query) == [("2026-03-02", "12", 1.0)]
    declared = asked(warehouse, "SELECT type FROM pragma_table_info('public.t')")
    assert [type_ for (type_,) in declared] == [
        *("BOOLEAN", "TEXT", "FLOAT BLOB", "FLOAT BLOB", "DATE", "TIMESTAMP", "TIMESTAMPTZ", "BLOB")
    ]


def test_numbers_that_print_alike_are_told_apart(warehouse: SqliteWarehouse) -> None:
    close, by = 0.1, math.nextafter(0.1, 1.0)
    schema = TableSchema(
        TableId("public", "t"), (Column("x", pa.float64(), "float8"),), (), KeyCheck.NONE
    )
    apply(warehouse, schema, changed(schema, 1, "+I", [pa.array([close, by, by])]), 1)
    apply(warehouse, schema, changed(schema, 2, "-D", [pa.array([by])]), 2)
    assert sorted(content(warehouse, schema)["x"].to_pylist()) == [close, by]


def test_years_that_no_calendar_prints_come_back(warehouse: SqliteWarehouse) -> None:
    days = pa.array([-2_440_588, 2_145_031_948, None], pa.int32()).view(pa.date32())
    schema = TableSchema(
        TableId("public", "t"), (Column("day", pa.date32(), "date"),), (), KeyCheck.NONE
    )
    apply(warehouse, schema, changed(schema, 1, "+I", [days]), 1)
    assert asked(warehouse, 'SELECT day FROM "public.t" ORDER BY day') == [
        (None,),
        ("-4713-11-24",),
        ("5874868-01-01",),
    ]
    held = content(warehouse, schema)["day"].combine_chunks().view(pa.int32())
    assert Counter(held.to_pylist()) == Counter([None, -2_440_588, 2_145_031_948])


def test_rows_are_found_by_an_index_also_after_their_key_has_become_wider(
    warehouse: SqliteWarehouse,
) -> None:
    def of(type_: pa.DataType) -> TableSchema:
        columns = (Column("k", type_, "int"), Column("a", pa.string(), "text"))
        return TableSchema(TableId("public", "t"), columns, ("k",), KeyCheck.IMMEDIATE)

    def indexes() -> list[tuple[Any, ...]]:
        return asked(
            warehouse,
            "SELECT c.name FROM pragma_index_list('public.t') AS i, pragma_index_info(i.name) AS c",
        )

    narrow, wide = of(pa.int32()), of(pa.decimal128(12, 1))
    cells = [pa.array([1, 2], pa.int32()), pa.array(["a", "b"])]
    apply(warehouse, narrow, changed(narrow, 1, "+I", cells), 1)
    assert indexes() == [("k",)]
    keys = pa.array([Decimal(2)], pa.decimal128(12, 1))
    apply(warehouse, wide, changed(wide, 2, "=U", [keys, pa.array(["c"])]), 2)
    assert indexes() == [("k",)]
    assert counted(content(warehouse, wide)) == Counter(
        {(Decimal(1), "a"): 1, (Decimal(2), "c"): 1}
    )
    wider = of(pa.decimal128(14, 3))
    keys = pa.array([Decimal(1), Decimal(2)], pa.decimal128(14, 3))
    apply(warehouse, wider, changed(wider, 3, "=U", [keys, pa.array(["d", "e"])]), 3)
    assert asked(warehouse, 'SELECT k, a FROM "public.t" ORDER BY k') == [
        ("1.000", "d"),
        ("2.000", "e"),
    ]
    plan = asked(warehouse, """EXPLAIN QUERY PLAN SELECT a FROM "public.t" WHERE k = '2.000'""")
    assert "USING INDEX headrace_key_" in plan[0][3]


def test_a_batch_is_written_while_others_read_and_they_see_one_moment(
    warehouse: SqliteWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "_LOCK_WAIT_S", 0.05)
    told_rows(warehouse, 1, "+I(1,a)")
    query = 'SELECT c1 FROM "public.orders"'
    with closing(sqlite3.connect(warehouse.path, isolation_level=None)) as other:
        other.execute("BEGIN")
        assert other.execute(query).fetchall() == [("a",)]
        told_rows(warehouse, 2, "=U(1,b)")
        assert other.execute(query).fetchall() == [("a",)]
    assert asked(warehouse, query) == [("b",)]


def test_a_reader_makes_no_file(warehouse: SqliteWarehouse) -> None:
    with warehouse.opened(read_only=True) as session:
        assert WarehouseTables(warehouse, "test").entries(session) == {}
    assert not warehouse.path.exists()


def refused(warehouse: SqliteWarehouse, kind: type[HeadraceError], said: str) -> None:
    """See that a batch is refused by an error that says so, names a next step, and holds no value."""
    with pytest.raises(kind, match=said) as found:
        told_rows(warehouse, 9, "+I(7,swordfish)")
    assert found.value.next_step
    assert "swordfish" not in str(found.value)


def test_a_file_of_another_kind_is_refused(warehouse: SqliteWarehouse) -> None:
    warehouse.path.parent.mkdir()
    warehouse.path.write_bytes(b"no database" * 100)
    refused(warehouse, TargetUnwritable, "no SQLite database")


def test_a_folder_in_the_place_of_the_file_is_refused(warehouse: SqliteWarehouse) -> None:
    warehouse.path.mkdir(parents=True)
    refused(warehouse, TargetUnwritable, "cannot be opened")


def test_a_file_that_another_process_writes_is_refused_after_a_while(
    warehouse: SqliteWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    told_rows(warehouse, 1, "+I(1,a)")
    monkeypatch.setattr(sqlite_file, "_LOCK_WAIT_S", 0.05)
    with closing(sqlite3.connect(warehouse.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        refused(warehouse, TargetUnwritable, "another process writes")
        other.execute("ROLLBACK")
    told_rows(warehouse, 9, "+I(7,b)")


def fill_up(warehouse: SqliteWarehouse) -> None:
    """Write beyond what the file may take."""
    with told(warehouse), warehouse.opened() as session:
        session.rows("PRAGMA max_page_count = 1")
        with session.transaction():
            session.run('DELETE FROM "public"."orders"')
            for key in range(100):
                session.run(f"""INSERT INTO "public"."orders" VALUES ({key}, '{"x" * 1_000}')""")


def test_a_full_disk_leaves_nothing_of_a_batch(warehouse: SqliteWarehouse) -> None:
    told_rows(warehouse, 1, "+I(1,a)")
    with pytest.raises(TargetUnwritable, match="takes no more"):
        fill_up(warehouse)
    assert asked(warehouse, 'SELECT k FROM "public.orders"') == [(1,)]


def test_a_table_that_somebody_has_changed_or_dropped_is_refused(
    warehouse: SqliteWarehouse,
) -> None:
    told_rows(warehouse, 1, "+I(1,a)")
    with closing(sqlite3.connect(warehouse.path)) as other:
        other.execute('ALTER TABLE "public.orders" ADD COLUMN more')
        refused(warehouse, TargetConflict, "not those that headrace made")
        other.execute('ALTER TABLE "public.orders" DROP COLUMN more')
        other.execute(
            'CREATE TRIGGER t BEFORE INSERT ON "public.orders" '
            "BEGIN SELECT RAISE(ABORT, 'swordfish'); END"
        )
        refused(warehouse, TargetError, "a constraint or trigger")
        other.execute('DROP TABLE "public.orders"')
    refused(warehouse, TargetConflict, "gone from the warehouse")


@pytest.mark.parametrize(
    ("names", "said"),
    [(("a", "A"), "by case alone"), (("_rowid_", "a"), "tells rows apart")],
)
def test_names_that_sqlite_mixes_up_are_refused(
    warehouse: SqliteWarehouse, names: tuple[str, ...], said: str
) -> None:
    columns = tuple(Column(name, pa.int64(), "int8") for name in names)
    schema = TableSchema(TableId("public", "t"), columns, (), KeyCheck.NONE)
    with pytest.raises(IncompatibleSchemaChange, match=said), warehouse.opened() as session:
        WarehouseTables(warehouse, "test").evolve(session, schema)


def test_tables_whose_names_differ_by_case_do_not_share_one(warehouse: SqliteWarehouse) -> None:
    with warehouse.opened() as session:
        tables = WarehouseTables(warehouse, "test")
        tables.evolve(session, SCHEMA)
        with pytest.raises(TargetConflict, match="did not make"):
            tables.evolve(session, table_of(2, name="ORDERS"))


def test_an_sqlite_that_drops_no_columns_is_refused(
    warehouse: SqliteWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    refused(warehouse, ConfigError, "drops no columns")
