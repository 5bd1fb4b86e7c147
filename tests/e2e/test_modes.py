"""Tables of one source, each kept in another way: docs/modes.md, carried out on a real server by the command line."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.lake.delta_log import DeltaTable
from headrace.lake.ledger import table_path
from headrace.model.schema import KeyCheck, TableId, TableSchema
from headrace.replicator.config import Config
from headrace.replicator.runner import _warehouse
from tests.cli.test_documents import blocks
from tests.e2e.pipeline import Pipeline
from tests.lake.sql.warehouses import content
from tests.places import local
from tests.requirements import req

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.timeout(1200)]

PAGE = "docs/modes.md"
ROOT = Path(__file__).parents[2]
TOAST = """
create table shop.prices_long (sku text primary key, price int, note text);
alter table shop.prices_long alter column note set storage external;
insert into shop.prices_long values ('old', 1, repeat('x', 9000));
create table shop.orders (id int primary key, total int);
insert into shop.orders values (1, 10);
"""
MORE = """
update shop.prices_long set sku = 'new' where sku = 'old';
truncate shop.orders;
"""


def shown(section: str, number: int) -> list[list[str]]:
    """Return the cells of one of the tables below a heading of the page."""
    text = (ROOT / PAGE).read_text(encoding="utf-8").partition(f"\n## {section}\n")[2]
    tables = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    rows = [
        [cell.strip() for cell in line[1:-1].split("|")] for line in tables[number].splitlines()
    ]
    return [rows[0], *rows[2:]]


def agrees(cell: str, value: Any) -> bool:
    if cell == "…":
        return isinstance(value, int | dt.datetime)
    if cell == "":
        return value is None
    return cell == (str(value).lower() if isinstance(value, bool) else str(value))


def statements(text: str) -> list[str]:
    return [statement for statement in text.split(";") if statement.strip()]


@pytest.fixture(
    params=[
        "delta",
        *(pytest.param(kind, marks=pytest.mark.long) for kind in ("duckdb", "postgres")),
    ]
)
def target(request: pytest.FixtureRequest) -> str:
    if request.param == "postgres":
        place = json.dumps(request.getfixturevalue("warehouse_url"))
        return f"{{type: postgres, url: {place}, schema_prefix: copy_}}"
    return f"{{type: {request.param}, path: ./copy}}"


def rows_of(config: Config, name: str) -> list[dict[str, Any]]:
    """Return the rows of a target table."""
    table, warehouse = TableId("shop", name), _warehouse(config)
    if warehouse is None:
        held = DeltaTable(table_path(config.lake, table)).snapshot().to_table()
    else:
        held = content(warehouse, TableSchema(table, (), (), KeyCheck.NONE), config.name)
    rows: list[dict[str, Any]] = held.to_pylist()
    return rows


@req("C-11")
def test_the_page_on_modes_shows_what_happens(url: str, tmp_path: Path, target: str) -> None:
    before, changes, _, before_too, changes_too, placed, moved = blocks(PAGE, "sql")
    settings, columns, partitions = blocks(PAGE, "yaml")
    in_partitions = "delta" in target
    others = (columns, partitions) if in_partitions else (columns,)
    more = "".join(other.removeprefix("tables:\n") for other in others)
    more += "  shop.prices_long: {mode: history}\n"
    pipeline = Pipeline(tmp_path, url, more=settings + more, target=target)
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements(before + before_too + placed + TOAST):
            connection.execute(statement)
        pipeline.succeed("run", "--once")
        for statement in statements(changes + changes_too + moved + MORE):
            connection.execute(statement)
        pipeline.succeed("run", "--once")

    def rows(name: str) -> list[dict[str, Any]]:
        return rows_of(pipeline.config, name)

    sections = (
        ("customers", "soft_delete", 0),
        ("prices", "history", 0),
        ("moves", "append", 0),
        ("people", "Columns", 0),
        ("readings", "Columns", 1),
    )
    for name, section, number in sections:
        head, *wanted = shown(section, number)
        left = rows(name)
        assert list(left[0]) == head, name
        for cells in wanted:
            (found,) = (
                row
                for row in left
                if all(agrees(cell, row[column]) for cell, column in zip(cells, head, strict=True))
            )
            left.remove(found)
        assert not left, name

    # What the log left out of the key change was taken from the old key.
    old, new = sorted(rows("prices_long"), key=lambda row: bool(row["_current"]))
    assert (old["sku"], new["sku"], new["note"]) == ("old", "new", old["note"])
    assert (old["_to_scn"], old["_valid_to"]) == (new["_from_scn"], new["_valid_from"])
    assert rows("orders") == []

    if in_partitions:
        visits = table_path(local(pipeline.config.lake), TableId("shop", "visits"))
        files = DeltaTable(visits).snapshot().files
        (folders,) = blocks(PAGE, "")
        lie = {str(local(file.path).parent.relative_to(visits)) for file in files}
        assert lie == set(folders.split())
    assert {row["id"]: row["region"] for row in rows("visits")} == {1: "south", 2: "south", 3: None}

    report = json.loads(pipeline.succeed("verify", "--json"))
    assert report["equal"]
    assert {table["table"]: table["state"] for table in report["tables"]} == {
        "shop.customers": "equal",
        "shop.moves": "append",
        "shop.orders": "equal",
        "shop.people": "equal",
        "shop.prices": "equal",
        "shop.prices_long": "equal",
        "shop.readings": "where",
        "shop.visits": "equal",
    }
    left_out = {table["table"]: table["left_out"] for table in report["tables"]}
    assert left_out["shop.people"] == ["email", "notes"]
