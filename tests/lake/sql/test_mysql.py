"""What MySQL and MariaDB need as targets beyond the other warehouses: both servers, in turn."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import (
    HeadraceError,
    IncompatibleSchemaChange,
    TargetConflict,
    TargetError,
    TargetUnwritable,
    UnheldValue,
)
from headrace.fold import fold
from headrace.lake.copies import Copy
from headrace.lake.sql import mysql_shapes
from headrace.lake.sql.ledger import LEDGER
from headrace.lake.sql.mysql import MysqlWarehouse
from headrace.lake.sql.session import Session, told
from headrace.lake.sql.tables import WarehouseTables
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from headrace.testing.notation import change_batch, parse_history, table_of
from tests.binlog_servers import is_mysql, make_user
from tests.fixtures_binlog import MARIADB, MYSQL
from tests.lake.sql.test_copied import NEW, NEW_ROWS, OLD, OLD_ROWS, PLACE, Crash, Mortal, Pair
from tests.lake.sql.test_values import changed, expect
from tests.lake.sql.warehouses import apply, content, emptied, encoded
from tests.requirements import req


@pytest.fixture(params=[MARIADB, MYSQL])
def server(request: pytest.FixtureRequest) -> MysqlProtocolServer:
    found: MysqlProtocolServer = request.getfixturevalue(request.param)
    emptied(found)
    return found


@pytest.fixture
def warehouse(server: MysqlProtocolServer) -> MysqlWarehouse:
    return MysqlWarehouse(server.url())


def of(*columns: tuple[str, pa.DataType], key: tuple[str, ...] = ()) -> TableSchema:
    check = KeyCheck.IMMEDIATE if key else KeyCheck.NONE
    made = tuple(Column(name, type_, "x") for name, type_ in columns)
    return TableSchema(TableId("public", "t"), made, key, check)


def test_values_lie_in_the_servers_own_types_to_their_ends(
    server: MysqlProtocolServer, warehouse: MysqlWarehouse
) -> None:
    days = [dt.date.min, dt.date(2026, 3, 1), dt.date.max]
    moments = ("0001-01-01 00:00:00", "2026-03-01 12:00:00.000005", "9999-12-31 23:59:59.999999")
    times = [dt.datetime.fromisoformat(moment) for moment in moments]
    cells: dict[str, pa.Array] = {
        "flag": pa.array([True, False, None]),
        "big": pa.array([2**63 - 1, -(2**63), None]),
        "single": pa.array([1.401298464324817e-45, 0.1, 3.4028234663852886e38], pa.float32()),
        "twice": pa.array([5e-324, -1.7976931348623157e308, 1 / 3]),
        "price": pa.array([Decimal("12.50"), Decimal("-1E-2"), None], pa.decimal128(38, 2)),
        "fine": pa.array(
            [Decimal("-1E-38"), Decimal("0." + "9" * 38), None], pa.decimal128(38, 38)
        ),
        "word": pa.array(["it's \\ \0 \U0001f600", "", None]),
        "raw": pa.array([bytes(range(256)), b"'\\", None]),
        "day": pa.array(days),
        "at": pa.array(times, pa.timestamp("us")),
        "at_utc": pa.array(times, pa.timestamp("us", "UTC")),
    }
    schema = of(*((name, cell.type) for name, cell in cells.items()), key=("big", "at"))
    apply(warehouse, schema, changed(schema, 1, "+I", list(cells.values())), 1)
    expect(warehouse, schema, list(cells.values()))
    declared = server.query(
        "SELECT column_name, column_type FROM information_schema.columns "
        "WHERE table_schema = 'public' AND column_name NOT IN ('big', 'headrace_row')"
    )
    assert dict(declared) == {
        "flag": "tinyint(1)",
        "single": "float",
        "twice": "double",
        "price": "decimal(38,2)",
        "fine": "varchar(64)",
        "word": "longtext",
        "raw": "longblob",
        "day": "date",
        "at": "datetime(6)",
        "at_utc": "datetime(6)",
    }
    # Our own column is no part of what others see.
    (row,) = server.query("SELECT * FROM public.t WHERE day = '2026-03-01'")
    assert len(row) == len(cells)
    assert row[list(cells).index("at_utc")] == times[1]


UTC = pa.timestamp("us", tz="UTC")
UNHELD = [
    (pa.float32(), float("nan"), "a NaN"),
    (pa.float64(), float("-inf"), "an infinite number"),
    (pa.date32(), 2**31 - 1, "an infinite date"),
    (pa.date32(), -719_163, "a date outside of the years 1 to 9999"),
    (pa.date32(), 2_932_897, "a date outside of the years 1 to 9999"),
    (pa.timestamp("us"), -(2**63), "an infinite time"),
    (pa.timestamp("us"), -62_135_596_800_000_001, "a time outside of the years 1 to 9999"),
    (UTC, 253_402_300_800_000_000, "a time outside of the years 1 to 9999"),
]


@req("C-18")
@pytest.mark.parametrize(("type_", "value", "what"), UNHELD, ids=str)
def test_a_value_that_no_type_holds_is_refused_by_name_and_nothing_is_written(
    warehouse: MysqlWarehouse, type_: pa.DataType, value: float, what: str
) -> None:
    schema = of(("k", pa.int64()), ("x", type_), key=("k",))
    whole = {pa.date32(): pa.int32(), pa.timestamp("us"): pa.int64(), UTC: pa.int64()}
    cells = pa.array([value], whole.get(type_, type_)).view(type_)
    apply(warehouse, schema, changed(schema, 1, "+I", [pa.array([1]), pa.nulls(1, type_)]), 1)
    with pytest.raises(UnheldValue, match=f"public.t.x holds {what}") as caught:
        apply(warehouse, schema, changed(schema, 2, "+I", [pa.array([2]), cells]), 2)
    assert (caught.value.table, caught.value.column) == ("public.t", "x")
    assert "target.extremes: text" in caught.value.next_step
    expect(warehouse, schema, [pa.array([1]), pa.nulls(1, type_)])


@req("T1")
def test_a_zero_with_a_sign_is_kept_by_mysql_and_refused_for_mariadb(
    server: MysqlProtocolServer, warehouse: MysqlWarehouse
) -> None:
    schema = of(("k", pa.int64()), ("x", pa.float64()), key=("k",))
    cells = [pa.array([1]), pa.array([-0.0])]
    batch = changed(schema, 1, "+I", cells)
    if is_mysql(server):
        apply(warehouse, schema, batch, 1)
        expect(warehouse, schema, cells)
    else:
        with pytest.raises(UnheldValue, match=r"public\.t\.x holds a zero with a sign"):
            apply(warehouse, schema, batch, 1)


@req("C-18")
def test_keys_are_the_same_only_when_their_bytes_are(warehouse: MysqlWarehouse) -> None:
    """No case, no accent, no space at the end and no letter behind the index makes two keys one."""
    long = "x" * 900
    keys = ["a", "A", "a ", "ä", "a\u0308", "", " ", "ss", "ß", long + "1", long + "2"]
    schema = of(("k", pa.string()), ("v", pa.int64()), key=("k",))
    cells = [pa.array(keys), pa.array(range(len(keys)))]
    apply(warehouse, schema, changed(schema, 1, "+I", cells), 1)
    expect(warehouse, schema, cells)
    gone = [cells[0].slice(0, 1), pa.nulls(1, pa.int64())]
    apply(warehouse, schema, changed(schema, 2, "-D", gone, [1]), 2)
    last = [cells[0].slice(len(keys) - 1), pa.array([-1])]
    apply(warehouse, schema, changed(schema, 3, "=U", last), 3)
    left = [cell.slice(1, len(keys) - 2) for cell in cells]
    both = [pa.concat_arrays([one, other]) for one, other in zip(left, last, strict=True)]
    expect(warehouse, schema, both)


class Steps:
    """A table whose shape changes, in processes that end before some statement."""

    def __init__(self, warehouse: MysqlWarehouse) -> None:
        self.warehouse = warehouse
        self.tables = WarehouseTables(warehouse, "test")

    @contextmanager
    def session(self) -> Iterator[Session]:
        with told(self.warehouse, PLACE), self.warehouse.opened() as session:
            yield session

    def dying(self, do: Callable[[Any], object], after: Callable[[], object]) -> int:
        """Do something in processes that end before one statement more each, until it is done; return how many did."""
        left = 0
        while True:
            try:
                with self.session() as session:
                    do(Mortal(session, left))
            except Crash:
                left += 1
                after()
            else:
                return left


@req("C12", "C43")
def test_a_table_that_a_crash_leaves_without_its_entry_is_made_again(
    warehouse: MysqlWarehouse,
) -> None:
    steps = Steps(warehouse)
    # One statement more each time: it would not get further than the first that is not undone.
    assert steps.dying(lambda s: steps.tables.evolve(s, OLD), lambda: None) > 4
    apply(warehouse, OLD, fold(OLD, [change_batch(OLD, [(5, 0, "+I", (1, "a", "b"))])]), 5)
    # What holds rows is never taken for one that was only begun.
    with steps.session() as session:
        session.run("DELETE FROM headrace.ledger")
        with pytest.raises(TargetConflict, match="did not make"):
            WarehouseTables(warehouse, "test").evolve(session, OLD)
        with pytest.raises(TargetConflict, match="did not make"):
            WarehouseTables(warehouse, "another").evolve(session, OLD)


@req("C12", "C30", "C43")
def test_a_crash_in_a_change_of_columns_leaves_the_old_or_the_new(
    warehouse: MysqlWarehouse,
) -> None:
    """Two columns change their names with each other, which no catalog tells."""
    pair = Pair(warehouse)
    swapped = replace(
        OLD,
        columns=(OLD.columns[0], *OLD.columns[:0:-1], Column("c3", pa.string(), "text")),
        numbers={"k": 1, "c2": 2, "c1": 3, "c3": 4},
    )
    turned = [{"k": r["k"], "c2": r["c1"], "c1": r["c2"], "c3": None} for r in OLD_ROWS]
    seen = []

    def look() -> None:
        seen.append(pair.shown())
        # Rows go on being written in whichever it is.
        entry = pair.entry()
        assert entry is not None
        rows = fold(entry.schema, [])
        with pair.session() as session, session.transaction():
            staged = pair.tables.stage(session, entry.schema, rows, "headrace.stage")
            pair.tables.apply(session, entry.schema, staged, entry.applied_scn + 1, complete=True)

    steps = Steps(warehouse)
    assert steps.dying(lambda s: steps.tables.evolve(s, swapped), look) >= 3
    assert {str(rows) for rows, _ in seen} == {str(OLD_ROWS), str(turned)}
    assert pair.shown()[0] == turned
    assert pair.entry() == pair.evolve(swapped)


@req("C12", "C43")
def test_a_crash_while_a_copy_takes_its_place_leaves_the_one_or_the_other(
    warehouse: MysqlWarehouse,
) -> None:
    pair = Pair(warehouse)
    steps = Steps(warehouse)
    copy = Copy("asked", 20)

    def old() -> None:
        assert pair.shown() == (OLD_ROWS, 10)

    assert steps.dying(lambda s: steps.tables.begin_copy(s, NEW, copy), old) > 2
    pair.apply(NEW, "+R(1,x,9) +R(4,a4,40)", 40)
    seen = []

    def end(session: Any) -> None:
        entry = steps.tables.entry(session, PLACE)
        if entry is not None and entry.copy is not None:
            steps.tables.end_copy(session, PLACE)

    steps.dying(end, lambda: seen.append(pair.shown()))
    assert seen[0] == (OLD_ROWS, 10)
    assert seen[-1] == (NEW_ROWS, 40)
    assert all(shown in ((OLD_ROWS, 10), (NEW_ROWS, 40)) for shown in seen)
    entry = pair.apply(NEW, "=U(1,y,8)", 50)
    assert (entry.copy, pair.entry()) == (None, entry)
    pair.begin(OLD, Copy("again", 60))
    assert pair.names() >= {LEDGER.name, PLACE.name}
    assert not [name for name in pair.names() if name.startswith("old_")]


def test_views_and_rights_are_those_of_the_name(
    server: MysqlProtocolServer, warehouse: MysqlWarehouse
) -> None:
    pair = Pair(warehouse)
    make_user(server, "reader", "SELECT ON public.t")
    pair.filled()
    pair.end()
    reader = MysqlWarehouse(server.url(user="reader"))
    with reader.opened(read_only=True) as session:
        assert sorted(session.rows("SELECT k, c1 FROM public.t")) == [(1, "x"), (4, "a4")]


def test_only_one_session_changes_the_shape_of_a_table(
    warehouse: MysqlWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(warehouse)
    wide = replace(OLD, columns=(*OLD.columns, Column("c3", pa.string(), "text")))
    with warehouse.opened() as one, warehouse.opened() as other:
        held = pair.tables.entry(one, PLACE)
        assert held is not None
        pair.tables.evolve(other, replace(wide, numbers={**OLD.numbers, "c3": 4}))
        stale = WarehouseTables(warehouse, "test")
        monkeypatch.setattr(stale, "entry", lambda _session, _table: held)
        with pytest.raises(TargetConflict):
            stale.evolve(one, replace(wide, numbers={**OLD.numbers, "c3": 5}))


def test_rows_go_in_by_statements_that_the_server_takes(
    server: MysqlProtocolServer, warehouse: MysqlWarehouse
) -> None:
    ((before,),) = server.query("SELECT @@global.max_allowed_packet")
    schema = of(("k", pa.int64()), ("v", pa.string()), key=("k",))
    try:
        server.execute("SET GLOBAL max_allowed_packet = 65536")
        cells = [pa.array(range(300)), pa.array(["it's" * 250] * 300)]
        apply(warehouse, schema, changed(schema, 1, "+I", cells), 1)
        expect(warehouse, schema, cells)
        large = [pa.array([300]), pa.array(["x" * 70_000])]
        with (
            pytest.raises(TargetError, match="larger than the server takes") as caught,
            told(warehouse, schema.table),
        ):
            apply(warehouse, schema, changed(schema, 2, "+I", large), 2)
        assert "max_allowed_packet" in caught.value.next_step
        expect(warehouse, schema, cells)
    finally:
        server.execute(f"SET GLOBAL max_allowed_packet = {before}")


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("k", "x" * 65), "longer than the warehouse keeps"),
        (("k", "ends "), "ends with a space"),
        (("k", "\U0001f600"), "has not in names"),
        (("k", "headrace_row"), "headrace's own column"),
        (("size", "SIZE"), "differs from size by case alone"),
        (("size", "sizé"), "is the same to the server as size"),
    ],
)
def test_names_that_a_server_does_not_take_are_refused(
    warehouse: MysqlWarehouse, names: Sequence[str], why: str
) -> None:
    schema = of(*((name, pa.int64()) for name in names))
    with warehouse.opened() as session, pytest.raises(IncompatibleSchemaChange, match=why):
        WarehouseTables(warehouse, "test").evolve(session, schema)


def refusal(warehouse: MysqlWarehouse, do: Callable[[Session], object]) -> HeadraceError:
    with (
        pytest.raises(HeadraceError) as caught,
        told(warehouse, PLACE),
        warehouse.opened() as session,
    ):
        do(session)
    assert caught.value.next_step
    return caught.value


def test_a_server_that_guards_people_at_a_prompt_lets_batches_through(
    server: MysqlProtocolServer, warehouse: MysqlWarehouse
) -> None:
    schema = table_of(3)
    life = [" ".join(f"+I({key},a,b)" for key in range(50)), "=U(1,x,?) | -D(2)", "T | +I(7,a,b)"]
    server.execute("SET GLOBAL sql_safe_updates = 1", "SET GLOBAL max_join_size = 10")
    server.execute("SET GLOBAL sql_big_selects = 0")
    try:
        for scn, history in enumerate(life, 1):
            parsed = parse_history(history)
            batch = fold(schema, [change_batch(schema, parsed.rows)], parsed.truncates)
            apply(warehouse, schema, batch, scn)
    finally:
        server.execute(
            "SET GLOBAL sql_safe_updates = DEFAULT", "SET GLOBAL max_join_size = DEFAULT"
        )
        server.execute("SET GLOBAL sql_big_selects = DEFAULT")
    assert content(warehouse, schema).to_pylist() == [{"k": 7, "c1": "a", "c2": "b"}]


def test_what_the_server_refuses_is_named(server: MysqlProtocolServer) -> None:
    make_user(server, "poor", "SELECT ON public.*")
    poor = MysqlWarehouse(server.url(user="poor"))
    tables = WarehouseTables(poor, "test")
    error = refusal(poor, lambda session: tables.evolve(session, OLD))
    assert isinstance(error, TargetUnwritable)
    assert "may not do that" in error.message
    wrong = MysqlWarehouse(server.url().replace(server.PASSWORD, "wrong"))
    assert "refused user or password" in refusal(wrong, lambda _: None).message
    gone = MysqlWarehouse(server.url().replace(str(server.port), "1"))
    assert "cannot be reached" in refusal(gone, lambda _: None).message
    rich = MysqlWarehouse(server.url())
    wide = of(*((f"c{number}", pa.string()) for number in range(400)))
    error = refusal(rich, lambda session: WarehouseTables(rich, "test").evolve(session, wide))
    assert isinstance(error, IncompatibleSchemaChange)
    assert "wider columns" in error.message
    assert "for-tests" not in repr(rich)


def test_a_date_that_lies_as_text_becomes_a_time_and_its_key_is_found(
    server: MysqlProtocolServer,
) -> None:
    texts = MysqlWarehouse(server.url(), extremes="text")
    old = of(("k", pa.date32()), ("v", pa.int64()), key=("k",))
    new = of(("k", pa.timestamp("us")), ("v", pa.int64()), key=("k",))
    days = [pa.array([dt.date(2024, 2, 29), dt.date(1, 1, 1)]), pa.array([1, 2])]
    apply(texts, old, changed(old, 1, "+I", days), 1)
    turned = [days[0].cast(pa.timestamp("us")), pa.array([3, 4])]
    apply(texts, new, changed(new, 2, "=U", turned), 2)
    assert encoded(content(texts, new)) == encoded(pa.table(turned, new.names))


def test_the_rights_that_the_page_grants_are_enough(server: MysqlProtocolServer) -> None:
    page = (Path(__file__).parents[3] / "docs" / "targets.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- tested: mysql target -->\n```sql\n(.*?)```", page, re.DOTALL)
    assert found is not None
    create, *grants = found[1].replace("choose-one", server.PASSWORD).strip().rstrip(";").split(";")
    server.execute("DROP USER IF EXISTS headrace_writer@'%'", create, *grants)
    writer = MysqlWarehouse(server.url(user="headrace_writer"), schema_prefix="copy_")
    pair = Pair(writer)
    pair.evolve(replace(OLD, columns=(*OLD.columns, Column("c3", pa.string(), "text"))))
    pair.filled()
    pair.end()
    assert pair.shown() == (NEW_ROWS, 40)


def test_a_change_of_shape_waits_for_another_and_then_names_it(
    warehouse: MysqlWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mysql_shapes, "_WAIT_S", 0)
    tables = WarehouseTables(warehouse, "test")
    with warehouse.opened() as one, warehouse.opened() as other:
        with mysql_shapes.alone(one, PLACE), pytest.raises(TargetUnwritable, match="Another"):
            tables.evolve(other, OLD)
        assert tables.entry(one, PLACE) is None
        assert tables.evolve(other, OLD).version == 0
