"""Names that a target does not take: all of them, and each told as the first batch would tell the first."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.lake.capabilities import DELTA, DUCKDB, PARQUET, POSTGRES, Capabilities
from headrace.lake.modes import Mode
from headrace.lake.settings import TableSettings
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.replicator.assess.columns import table_verdict
from headrace.replicator.assess.names import name_problems
from headrace.replicator.assess.support import Support
from headrace.sources.description import ColumnDescription, Given, TableDescription
from tests.requirements import req

LONG = "n" * 64


def schema(*names: str, table: str = "t", key: tuple[str, ...] = ("id",)) -> TableSchema:
    columns = tuple(Column(name, pa.int64(), "bigint") for name in ("id", *names))
    check = KeyCheck.IMMEDIATE if key else KeyCheck.NONE
    return TableSchema(TableId("public", table), columns, key, check)


@req("C-17")
@pytest.mark.parametrize(
    ("target", "names", "found"),
    [
        (DELTA, ("a b", "ok", "c;d"), ["column-name-refused a b", "column-name-refused c;d"]),
        (DELTA, ("v", "V", "w", "v "), ["column-name-refused v ", "column-names-collide V"]),
        (
            DELTA,
            ("a", "A", "b", "B", "ID"),
            [f"column-names-collide {n}" for n in ["A", "B", "ID"]],
        ),
        (DUCKDB, ("v", "V", "rowid"), ["column-names-collide V"]),
        (DUCKDB, ("a b", LONG), []),
        (POSTGRES, ("v", "V", "a b"), []),
        (POSTGRES, (LONG, "é" * 32), [f"column-name-refused {n}" for n in (LONG, "é" * 32)]),
        (PARQUET, ("v", "V", "a b", LONG), []),
    ],
)
def test_each_name_that_is_refused_is_told(
    target: Capabilities, names: tuple[str, ...], found: list[str]
) -> None:
    mode = Mode.APPEND if target is PARQUET else Mode.MIRROR
    problems = list(name_problems(schema(*names), mode, target))
    assert [f"{p.name} {p.column}" for p in problems] == found
    assert all(p.suggestion and p.description for p in problems)


@req("C-17")
@pytest.mark.parametrize(
    ("target", "table", "prefix", "refused"),
    [
        (DELTA, "a/b", "", True),
        (DELTA, "..", "", True),
        (PARQUET, "a/b", "", True),
        (PARQUET, "..", "", True),
        (PARQUET, "a b", "", False),
        (DELTA, "a b", "", False),
        (POSTGRES, LONG, "", True),
        (POSTGRES, "t", "p" * 58, True),
        (POSTGRES, "t", "p" * 57, False),
        (DUCKDB, LONG, "", False),
    ],
)
def test_a_table_that_has_no_place_is_told_once(
    target: Capabilities, table: str, prefix: str, refused: bool
) -> None:
    found = list(name_problems(schema("a b", table=table), Mode.MIRROR, target, prefix))
    names = [problem.name for problem in found]
    assert names == ["table-name-refused"] if refused else "table-name-refused" not in names


@pytest.mark.parametrize(
    ("mode", "names", "key", "found"),
    [
        (Mode.MIRROR, ("_deleted",), (), []),
        (Mode.SOFT_DELETE, ("_Deleted", "_op"), ("id",), ["mode-column-taken"] * 2),
        (Mode.HISTORY, ("_valid_from",), (), ["mode-without-key", "mode-column-taken"]),
        (Mode.APPEND, ("_valid_from",), (), []),
    ],
)
def test_what_a_mode_needs_is_told(
    mode: Mode, names: tuple[str, ...], key: tuple[str, ...], found: list[str]
) -> None:
    problems = name_problems(schema(*names, key=key), mode, DELTA)
    assert [problem.name for problem in problems] == found


@req("C-17")
def test_another_name_makes_a_refused_column_fit() -> None:
    columns = tuple(
        ColumnDescription(name, "bigint", True, pa.int64(), Given.EXACT)
        for name in ("id", "v", "V", "a b")
    )
    table = TableDescription(TableId("public", "t"), columns, ("id",), ("id",), 1, 1)
    verdict = table_verdict(table, TableSettings(), DELTA)
    refused = [column for column in verdict.columns if column.support is Support.NO]
    assert [(c.source_name, c.remedies) for c in refused] == [
        ("V", ("rename V V_2",)),
        ("a b", ("rename a b a_b",)),
    ]
    # What is advised works.
    settings = TableSettings(rename=(("V", "V_2"), ("a b", "a_b")))
    cured = table_verdict(table, settings, DELTA)
    assert cured.problems == ()
    assert {column.support for column in cured.columns} == {Support.YES}


def test_many_columns_are_told_in_no_time() -> None:
    names = [f"c{n}" for n in range(1_500)] + [f"C{n}" for n in range(0, 100, 10)]
    found = list(name_problems(schema(*names), Mode.MIRROR, DELTA))
    assert [problem.column for problem in found] == names[1_500:]
