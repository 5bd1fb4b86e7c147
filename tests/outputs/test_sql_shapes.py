"""Copies in a database follow the columns of their source, wherever between checkpoints these change."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.client import Batch
from headrace.errors import TargetConflict
from headrace.lake.sql.postgres import PostgresWarehouse
from headrace.lake.sql.session import Session, Warehouse
from headrace.model.block import SystemEvent, SystemKind
from headrace.model.change import change_schema
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.outputs.sql import SqlOutput
from headrace.outputs.steps import Told
from headrace.wire.place import Place
from tests.lake.sql.warehouses import MIRRORS, content, counted, made
from tests.outputs.windows import window_of

KEY = {"k": 1}
TEXT = pa.string()


@pytest.fixture(params=MIRRORS)
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    return made(request.param, request, tmp_path)


def version(check: KeyCheck = KeyCheck.IMMEDIATE, **columns: pa.DataType) -> TableSchema:
    """Return a version of the table with the columns beside ``k``."""
    types = {"k": pa.int64(), **columns}
    return TableSchema(
        TableId("public", "orders"),
        tuple(Column(name, type_, str(type_)) for name, type_ in types.items()),
        ("k",) if check is not KeyCheck.NONE else (),
        check,
    )


A = version(a=TEXT)
B = version(b=TEXT)
AB = version(a=TEXT, b=TEXT)
BA = version(b=TEXT, a=TEXT)


def started(warehouse: Warehouse) -> SqlOutput:
    output = SqlOutput(warehouse, "copy")
    output.load()
    output.on_start()
    return output


def shape(
    output: SqlOutput, scn: int, schema: TableSchema, was: Told | None = None, **numbers: int
) -> None:
    """Tell that the table has another shape from here on."""
    payload: dict[str, object] = {"schema_id": schema.schema_id, "numbers": {**KEY, **numbers}}
    if was is not None:
        payload["was"] = {"schema_id": was.schema_id, "numbers": was.numbers}
    output.on_system_event(SystemEvent(scn, 0, SystemKind.SCHEMA, schema.table, payload))


def rows(output: SqlOutput, scn: int, schema: TableSchema, *cells: object, op: str = "+I") -> None:
    """Tell a window of one row."""
    output.on_start_window(window_of(scn))
    meta: list[pa.Array] = [
        pa.array([scn], pa.int64()),
        pa.array([1], pa.int32()),
        pa.array([op]),
        pa.nulls(1, pa.binary()),
    ]
    own = [pa.array([cell], c.type) for cell, c in zip(cells, schema.columns, strict=True)]
    batch = pa.record_batch([*meta, *own], schema=change_schema(schema))
    output.on_data_batch(Batch(schema.table, schema, batch))
    output.on_end_window(window_of(scn))


def held(warehouse: Warehouse, schema: TableSchema) -> Counter[tuple[object, ...]]:
    """Return the rows of the copy by the names of a version's columns."""
    return counted(content(warehouse, schema, "copy").select(schema.names))


@pytest.mark.parametrize("at_once", [False, True])
def test_a_column_that_went_and_came_back_is_another_one(
    warehouse: Warehouse, at_once: bool
) -> None:
    output = started(warehouse)
    shape(output, 5, A, a=2)
    rows(output, 5, A, 1, "old")
    if not at_once:
        output.on_checkpoint(Place(5))
    shape(output, 6, A, a=3)
    rows(output, 6, A, 2, "new")
    output.on_checkpoint(Place(6))
    assert held(warehouse, A) == Counter({(1, None): 1, (2, "new"): 1})


@pytest.mark.parametrize("at_once", [False, True])
def test_a_column_keeps_its_values_under_another_name(warehouse: Warehouse, at_once: bool) -> None:
    output = started(warehouse)
    shape(output, 5, A, a=2)
    rows(output, 5, A, 1, "x")
    if not at_once:
        output.on_checkpoint(Place(5))
    shape(output, 6, B, b=2)
    rows(output, 6, B, 2, "y")
    output.on_checkpoint(Place(6))
    assert held(warehouse, B) == Counter({(1, "x"): 1, (2, "y"): 1})


@pytest.mark.parametrize("at_once", [False, True])
def test_names_that_change_places_take_their_values_along(
    warehouse: Warehouse, at_once: bool
) -> None:
    output = started(warehouse)
    shape(output, 5, AB, a=2, b=3)
    rows(output, 5, AB, 1, "first", "second")
    if not at_once:
        output.on_checkpoint(Place(5))
    shape(output, 6, BA, b=2, a=3)
    rows(output, 6, BA, 2, "first", "second")
    output.on_checkpoint(Place(6))
    both = {(1, "first", "second"): 1, (2, "first", "second"): 1}
    assert held(warehouse, BA) == Counter(both)


def test_a_copy_that_was_told_no_numbers_learns_them_from_the_next_change(
    warehouse: Warehouse,
) -> None:
    output = started(warehouse)
    rows(output, 5, AB, 1, "first", "second")
    output.on_checkpoint(Place(5))
    shape(output, 6, BA, Told(5, AB.schema_id, {**KEY, "a": 2, "b": 3}), b=2, a=3)
    rows(output, 6, BA, 2, "first", "second")
    output.on_checkpoint(Place(6))
    both = {(1, "first", "second"): 1, (2, "first", "second"): 1}
    assert held(warehouse, BA) == Counter(both)


@pytest.mark.parametrize("emptied", [False, True])
def test_what_was_said_of_columns_is_remembered_until_a_row_follows(
    warehouse: Warehouse, emptied: bool
) -> None:
    output = started(warehouse)
    shape(output, 5, A, a=2)
    rows(output, 5, A, 1, "old")
    output.on_checkpoint(Place(5))
    shape(output, 6, A, a=3)
    if emptied:
        output.on_system_event(SystemEvent(7, 0, SystemKind.TRUNCATE, A.table))
    output.on_checkpoint(Place(8))
    output = started(warehouse)
    rows(output, 9, A, 2, "new")
    output.on_checkpoint(Place(9))
    output = started(warehouse)
    rows(output, 10, A, 3, "newer")
    output.on_checkpoint(Place(10))
    before = Counter({} if emptied else {(1, None): 1})
    assert held(warehouse, A) == before + Counter({(2, "new"): 1, (3, "newer"): 1})


def test_rows_that_come_again_in_smaller_pieces_find_the_columns_of_their_time(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow, wide = version(a=pa.int32()), version(a=pa.int64())
    output = started(warehouse)
    rows(output, 5, narrow, 1, 1)
    output.on_checkpoint(Place(5))
    rows(output, 6, narrow, 2, 2)
    rows(output, 7, wide, 3, 2**40)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(SqlOutput, "_commit", killed)
        with pytest.raises(KeyboardInterrupt):
            output.on_checkpoint(Place(7))
    output = started(warehouse)
    for scn, schema, row in ((6, narrow, (2, 2)), (7, wide, (3, 2**40))):
        rows(output, scn, schema, *row)
        output.on_checkpoint(Place(scn))
    assert held(warehouse, wide) == Counter({(1, 1): 1, (2, 2): 1, (3, 2**40): 1})


def test_nobody_writes_over_another_of_its_name_ahead_of_a_change_of_columns(database: str) -> None:
    """One was about to write what another has written meanwhile."""
    warehouse = PostgresWarehouse(database)
    bag_a, bag_b = (version(KeyCheck.NONE, **{name: TEXT}) for name in "ab")

    class Late(SqlOutput):
        def _apply(self, session: Session, work: Any, scn: int, *, complete: bool) -> Any:
            if other.load() == Place(5):
                rows(other, 6, bag_a, 1, "x")
                other.on_checkpoint(Place(6))
            return super()._apply(session, work, scn, complete=complete)

    other, late = started(warehouse), Late(warehouse, "copy")
    shape(other, 5, bag_a, a=2)
    rows(other, 5, bag_a, 1, "x")
    other.on_checkpoint(Place(5))
    late.load()
    late.on_start()
    rows(late, 6, bag_a, 1, "x")
    rows(late, 7, bag_a, 1, "x")
    shape(late, 8, bag_b, b=2)
    rows(late, 8, bag_b, 1, "x")
    with pytest.raises(TargetConflict):
        late.on_checkpoint(Place(8))
    assert held(warehouse, bag_a) == Counter({(1, "x"): 2})
    late.on_rollback(late.load() or Place(0))
    rows(late, 7, bag_a, 1, "x")
    shape(late, 8, bag_b, b=2)
    rows(late, 8, bag_b, 1, "x")
    late.on_checkpoint(Place(8))
    assert held(warehouse, bag_b) == Counter({(1, "x"): 4})
