"""The design's worked example at a real server: which events its statements give, and how they are numbered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.model.block import SystemKind
from headrace.sources.postgres import PostgresSource
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.sources.postgres.support import Collected, opened

pytestmark = pytest.mark.postgres

TABLE = "mydb.customers"
CREATED = (
    "CREATE SCHEMA mydb",
    "CREATE TABLE mydb.customers (id int, name varchar(50), PRIMARY KEY (id))",
    "ALTER TABLE mydb.customers REPLICA IDENTITY FULL",
)
CHANGED = (
    "INSERT INTO mydb.customers (id, name) VALUES (0, 'alice')",
    "UPDATE mydb.customers SET id = 1 WHERE id = 0",
    "UPDATE mydb.customers SET id = 2 WHERE id = 1",
    "DELETE FROM mydb.customers WHERE id = 2",
    "INSERT INTO mydb.customers (id, name) VALUES (0, 'Alice'), (1, 'blob')",
    "UPDATE mydb.customers SET name = 'Bob' WHERE id = 1",
)


def numbered(got: Collected) -> list[tuple[Any, ...]]:
    """Return number, operation, row before and row of each event, in order of positions; a change is one event."""
    told: list[tuple[tuple[int, int], tuple[Any, ...]]] = [
        ((event.scn, event.ord), (event.kind.value, str(event.table), None)) for event in got.events
    ]
    before = None
    for row in got.rows(TABLE):
        place, cells = (row["_scn"], row["_ord"]), (row["id"], row["name"])
        match row["_op"]:
            case "-U":
                before = cells
            case "+U":
                told.append((place, ("UPDATE", before, cells)))
            case "-D":
                told.append((place, ("DELETE", cells, None)))
            case "+I":
                told.append((place, ("INSERT", None, cells)))
            case other:
                raise AssertionError(f"{other} tells no row before")
    return [(number, *event) for number, (_, event) in enumerate(sorted(told))]


@req("C37")
def test_the_example_gives_two_events_of_shape_and_seven_of_rows(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """A table's creation is told with its first row, and says its columns and its key."""
    # A capture begins where there is something to capture.
    sql("CREATE TABLE older (id int PRIMARY KEY)", "CREATE PUBLICATION everything FOR ALL TABLES")
    arguments: dict[str, Any] = {
        "tables": ("public.*", "mydb.*"),
        "ddl": "trigger",
        "publication": "everything",
    }
    (finding,) = (
        finding
        for finding in PostgresSource(database, **arguments).preflight()
        if finding.name == "ddl-trigger-missing"
    )
    sql(finding.suggestion.partition(": ")[2])
    with opened(database, tmp_path, **arguments) as log:
        sql(*CREATED, *CHANGED)
        got = log.collect()
        (shape,) = (e.payload["schema_id"] for e in got.events if e.kind is SystemKind.SCHEMA)
        created = log.schema(shape)
    assert (created.names, created.key) == (["id", "name"], ("id",))
    assert [column.source_type for column in created.columns] == [
        "integer",
        "character varying(50)",
    ]
    assert numbered(got) == [
        (0, "create_schema", "mydb.", None),
        (1, "schema", TABLE, None),
        (2, "INSERT", None, (0, "alice")),
        (3, "UPDATE", (0, "alice"), (1, "alice")),
        (4, "UPDATE", (1, "alice"), (2, "alice")),
        (5, "DELETE", (2, "alice"), None),
        (6, "INSERT", None, (0, "Alice")),
        (7, "INSERT", None, (1, "blob")),
        (8, "UPDATE", (1, "blob"), (1, "Bob")),
    ]
    # The number that a frontier tells counts both rows of an update.
    assert sum(entry["changes"] for entry in got.index) == 9 + 3
