"""Schema events say which column is which, also when the catalog has moved on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.changelog import ChangeLogReader
from headrace.model.block import SystemKind
from headrace.registry.file import FileRegistry
from headrace.sources.postgres import PostgresSource
from headrace.spark.plan import Range, steps_of
from headrace.state.records import Scope
from tests.faults.faulty import PUBLIC_T, at_work, follows
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(120)]


def told(folder: Path) -> list[dict[str, Any]]:
    """Return what the schema events of the table say, each shape once."""
    found = [
        event.payload
        for block in ChangeLogReader(folder / "changelog").blocks(0)
        for event in block.system
        if event.kind is SystemKind.SCHEMA and event.table == PUBLIC_T
    ]
    found = [
        dict(one, numbers=places(one["numbers"])) if "numbers" in one else one for one in found
    ]
    return [now for before, now in zip([{}, *found], found, strict=False) if before != now]


def places(numbers: dict[str, int]) -> dict[str, int]:
    """Return the places of columns in their table, whose own number stands before them."""
    assert len({number >> 16 for number in numbers.values()}) == 1
    return {name: number & 0xFFFF for name, number in numbers.items()}


@req("P33", "C30")
def test_a_renamed_column_has_the_number_that_it_had(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, a text, b text)", "INSERT INTO t VALUES (1, 'x', 'y')")
    with at_work(PostgresSource(database, name="numbers"), tmp_path) as running:
        until(running.dumped, "the first copy")
        # The first copy itself says them: a table may stay without a change for years.
        assert told(tmp_path)[0]["numbers"] == {"id": 1, "a": 2, "b": 3}
        sql("UPDATE t SET a = 'z'", "ALTER TABLE t RENAME a TO label", "UPDATE t SET label = 'l'")
        follows(running, database)
        # The shape is the same afterwards, and yet the column is another one; its rows are read again.
        running.judged = False
        sql("ALTER TABLE t DROP b", "ALTER TABLE t ADD b text", "UPDATE t SET b = 'new'")
        follows(running, database)
    numbers = [payload.get("numbers") for payload in told(tmp_path)]
    assert {"id": 1, "label": 2, "b": 3} in numbers
    assert numbers[-1] == {"id": 1, "label": 2, "b": 4}


@req("C30")
def test_a_dump_tells_of_a_column_that_took_the_place_of_one_of_its_name(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, a text)", "INSERT INTO t VALUES (1, 'x')")
    with at_work(PostgresSource(database, name="numbers"), tmp_path) as running:
        until(running.dumped, "the first copy")
        # No row changes afterwards: the log itself never says it.
        sql("ALTER TABLE t DROP a", "ALTER TABLE t ADD a text DEFAULT 'y'")
        until(
            lambda: {"id": 1, "a": 3} in [one.get("numbers") for one in told(tmp_path)],
            "the other column's number",
        )


@req("C30", "P33")
@pytest.mark.parametrize("key", ["PRIMARY KEY", "NOT NULL"])
def test_a_dump_that_tells_of_a_shape_first_tells_of_the_one_before_it_too(
    database: str, sql: Sql, tmp_path: Path, key: str
) -> None:
    """Whoever reads rows of both shapes at once has to know what became of each column of the older one."""
    sql(f"CREATE TABLE t (id int {key}, a text)", "ALTER TABLE t REPLICA IDENTITY FULL")
    sql("INSERT INTO t VALUES (1, 'x')")
    with at_work(PostgresSource(database, name="numbers"), tmp_path) as running:
        until(running.dumped, "the first copy")
        sql("UPDATE t SET a = 'y'")
        follows(running, database)
        begin = running.reader.tail().covered_scn
        sql("UPDATE t SET a = 'z'")
        follows(running, database)
        # No row changes afterwards, and the log itself never says it.
        sql("ALTER TABLE t DROP a, ADD b text")
        running.state.submit(Scope.TABLE, PUBLIC_T)
        until(lambda: "b" in told(tmp_path)[-1]["numbers"], "the other column's number")
        until(running.dumped, "the second copy")
    assert told(tmp_path)[-1]["numbers"] == {"id": 1, "b": 3}
    assert places(told(tmp_path)[-1]["was"]["numbers"]) == {"id": 1, "a": 2}
    log, registry = (
        ChangeLogReader(tmp_path / "changelog"),
        FileRegistry(tmp_path / "changelog" / "schemas"),
    )
    part = Range(log, registry, begin, log.tail().covered_scn)
    for step in steps_of(part, PUBLIC_T, begin, 1_000, None):
        now = replace(step.schema, numbers=step.numbers[step.schema.schema_id])
        assert None not in step.versions(registry, now).values(), "nobody knows what became of rows"


@req("C30")
def test_shapes_that_are_past_are_numbered_where_no_column_was_ever_lost(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, a text)", "INSERT INTO t VALUES (1, 'x')")
    source = PostgresSource(database, name="numbers")
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
    # Nobody captures, and all of this is decoded when the last of it is so.
    sql(
        "ALTER TABLE t ADD more text",
        "UPDATE t SET more = '1'",
        "ALTER TABLE t RENAME more TO extra",
        "UPDATE t SET extra = '2'",
        "ALTER TABLE t RENAME a TO more",
        "UPDATE t SET more = '3'",
    )
    with at_work(PostgresSource(database, name="numbers"), tmp_path) as running:
        follows(running, database)
    numbers = [payload["numbers"] for payload in told(tmp_path)]
    assert {"id": 1, "a": 2, "more": 3} in numbers
    assert {"id": 1, "a": 2, "extra": 3} in numbers
    assert numbers[-1] == {"id": 1, "more": 2, "extra": 3}


@req("C30")
def test_a_past_shape_of_a_table_that_lost_a_column_before_is_numbered(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, lost text, a text, b text)", "ALTER TABLE t DROP lost")
    with at_work(PostgresSource(database, name="numbers"), tmp_path) as running:
        until(running.dumped, "the first copy")
    before = len(told(tmp_path))
    sql(
        "INSERT INTO t VALUES (1, 'x', 'y')",
        # By name alone the old shape's columns would be taken for the new ones.
        "ALTER TABLE t RENAME a TO c",
        "ALTER TABLE t RENAME b TO a",
        "ALTER TABLE t RENAME c TO b",
        "INSERT INTO t VALUES (2, 'x', 'y')",
    )
    with at_work(PostgresSource(database, name="numbers"), tmp_path):
        until(lambda: len(told(tmp_path)) > before + 1, "both shapes")
    old, *_, new = told(tmp_path)[before:]
    assert old["numbers"] == {"id": 1, "a": 3, "b": 4}
    assert new["numbers"] == {"id": 1, "b": 3, "a": 4}


@req("C30")
def test_a_past_shape_of_a_table_that_lost_a_column_since_is_left_open(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, a text, b text)")
    with at_work(PostgresSource(database, name="numbers"), tmp_path) as running:
        until(running.dumped, "the first copy")
    before = len(told(tmp_path))
    sql(
        "INSERT INTO t VALUES (1, 'x', 'y')",
        # As many columns as before, and of the same types, and yet others.
        "ALTER TABLE t DROP a",
        "ALTER TABLE t RENAME b TO c",
        "ALTER TABLE t ADD d text",
        "INSERT INTO t VALUES (2, 'x', 'y')",
    )
    with at_work(PostgresSource(database, name="numbers"), tmp_path):
        until(lambda: len(told(tmp_path)) > before + 1, "both shapes")
    old, *_, new = told(tmp_path)[before:]
    assert "numbers" not in old
    assert new["numbers"] == {"id": 1, "c": 3, "d": 4}


@req("P33", "C30")
@pytest.mark.parametrize("lost", ["never", "before", "meanwhile"])
def test_a_column_that_is_renamed_and_renamed_back_at_once_keeps_its_number(
    database: str, sql: Sql, tmp_path: Path, lost: str
) -> None:
    """When the log tells the name in between, the catalog has the one of before again."""
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, gone int, v text)",
        "INSERT INTO t SELECT n, n, 'v' FROM generate_series(1, 20) n",
    )
    if lost == "before":
        sql("ALTER TABLE t DROP gone")
    with at_work(PostgresSource(database, name="numbers"), tmp_path) as running:
        until(running.dumped, "the first copy")
        if lost == "meanwhile":
            sql("ALTER TABLE t DROP gone", "UPDATE t SET v = 'w' WHERE id = 7")
            follows(running, database)
        # The stretch with the other name is no shape that the catalog ever shows.
        running.judged = False
        sql(
            "BEGIN; ALTER TABLE t RENAME v TO w; UPDATE t SET w = 'x' WHERE id = 3;"
            "ALTER TABLE t RENAME w TO v; COMMIT",
            "UPDATE t SET v = 'y' WHERE id = 12",
        )
        follows(running, database)
    assert running.error is None
    renamed = [one["numbers"] for one in told(tmp_path) if "w" in one.get("numbers", ())]
    assert [one["w"] for one in renamed] == [3]
