from __future__ import annotations

from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pytest

from headrace.errors import IncompatibleSchemaChange
from headrace.fold import fold
from headrace.lake.overlay import Overlay, conform
from headrace.model.change import table_arrow_schema
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.testing.notation import parse_history, table_of


def laid(schema: TableSchema, held: list[tuple], changes: str) -> tuple[Counter, Overlay]:
    """Lay changes over rows, in batches of two; return the rows with their counts."""
    history = parse_history(changes)
    effects = fold(schema, [history.batch(schema)] if history.rows else [], history.truncates)
    names = schema.names
    rows = [dict(zip(names, row, strict=True)) for row in held]
    batches = pa.Table.from_pylist(rows, schema=table_arrow_schema(schema)).to_batches(2)
    overlay = Overlay(schema, effects)
    found: Counter = Counter()
    for batch, weights in overlay.rows(batches):
        counts = [1] * batch.num_rows if weights is None else weights.tolist()
        for row, count in zip(batch.to_pylist(), counts, strict=True):
            found[tuple(row.values())] += count
    return Counter({row: count for row, count in found.items() if count}), overlay


@pytest.mark.parametrize(
    ("held", "changes", "expected"),
    [
        ([(1, "a"), (2, "b")], "", [(1, "a"), (2, "b")]),
        ([(1, "a"), (2, "b")], "+I(3,c) | -D(1,.) | =U(2,B)", [(2, "B"), (3, "c")]),
        ([(1, "a")], "-U(1,a) +U(4,x)", [(4, "x")]),
        ([(1, "a"), (2, "b"), (3, "c")], "T | +I(2,z)", [(2, "z")]),
        ([(1, "a")], "-D(9,.)", [(1, "a")]),
        ([], "+I(1,a)", [(1, "a")]),
    ],
)
def test_rows_with_a_key(held, changes, expected):
    found, overlay = laid(table_of(2), held, changes)
    assert found == Counter(expected)
    assert overlay.unresolved == 0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ("=U(1,x,?)", [(1, "x", "C1"), (2, "q", "C2"), (3, "r", "C3")]),
        ("-U(1,?,?) +U(1,x,?)", [(1, "x", "C1"), (2, "q", "C2"), (3, "r", "C3")]),
        ("-D(2,.,.) -U(1,?,?) +U(2,r,?)", [(2, "r", "C1"), (3, "r", "C3")]),
        (
            "-U(1,?,?) +U(9,p,?) | -U(2,?,?) +U(1,q,?) | -U(9,?,?) +U(2,p,?)",
            [(1, "q", "C2"), (2, "p", "C1"), (3, "r", "C3")],
        ),
    ],
)
def test_cells_the_source_did_not_send_come_from_the_row_they_were_in(changes, expected):
    held = [(1, "p", "C1"), (2, "q", "C2"), (3, "r", "C3")]
    found, overlay = laid(table_of(3), held, changes)
    assert found == Counter(expected)
    assert overlay.unresolved == 0


@pytest.mark.parametrize("changes", ["=U(7,x,?)", "T | =U(1,x,?)"])
def test_cells_from_nowhere_are_counted_and_null(changes):
    found, overlay = laid(table_of(3), [(1, "p", "C1")], changes)
    assert any(row[1:] == ("x", None) for row in found)
    assert overlay.unresolved == 1


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ("+I(1,a) | -D(2,b)", {(1, "a"): 3, (2, "b"): 1}),
        ("-U(2,b) +U(3,c)", {(1, "a"): 2, (2, "b"): 1, (3, "c"): 1}),
        ("T | +I(1,a)", {(1, "a"): 1}),
    ],
)
def test_rows_without_a_key_are_counted(changes, expected):
    held = [(1, "a"), (1, "a"), (2, "b"), (2, "b")]
    found, _ = laid(table_of(2, check=KeyCheck.NONE), held, changes)
    assert found == Counter(expected)


def test_old_rows_take_the_newer_columns_and_types():
    new = TableSchema(
        TableId("public", "t"),
        (
            Column("id", pa.int64(), "bigint"),
            Column("price", pa.decimal128(12, 4), "numeric(12,4)"),
            Column("note", pa.string(), "text"),
        ),
        ("id",),
        KeyCheck.IMMEDIATE,
    )
    old = pa.record_batch(
        {
            "gone": pa.array(["x"]),
            "price": pa.array([Decimal("1.50")], pa.decimal128(5, 2)),
            "id": pa.array([7], pa.int32()),
        }
    )
    rows = conform(old, new)
    assert rows.schema.equals(table_arrow_schema(new))
    assert rows.to_pylist() == [{"id": 7, "price": Decimal("1.5000"), "note": None}]


def test_a_value_that_does_not_fit_is_named():
    old = pa.record_batch({"k": pa.array(["x"]), "c1": pa.array(["y"])})
    with pytest.raises(IncompatibleSchemaChange, match=r"public\.t\.k"):
        conform(old, table_of(2))
