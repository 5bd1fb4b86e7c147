"""Changes that a target does not take, from a real source through one running control plane: put aside, and tried.

Source: docs/requirements.md, section on seed 004; its user story 4.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from headrace.testing.postgres import EmbeddedPostgres
from tests.e2e.admin import NS, Admin
from tests.e2e.databases import said
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TABLES = (
    "create schema shop",
    "create table shop.orders (id int primary key, region varchar(20))",
    "create table shop.notes (id int primary key)",
    "insert into shop.orders values (1, 'north')",
    "insert into shop.notes values (1)",
)
NAME = "shop"
LETTERS = f"{NS}/replicators/{NAME}/dead-letters"
PATIENCE_S = 20.0


class Sql:
    """A session at the source, each statement a transaction."""

    def __init__(self, url: str) -> None:
        self.url = url

    def execute(self, *statements: str) -> None:
        said(self.url, *statements)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("mariadb", marks=[pytest.mark.mariadb, pytest.mark.long]),
        pytest.param("mysql", marks=[pytest.mark.mysql, pytest.mark.long]),
    ],
)
def kind(request: pytest.FixtureRequest) -> str:
    """Run all tests on each kind of server in turn."""
    return str(request.param)


@pytest.fixture(scope="module")
def sql(kind: str, request: pytest.FixtureRequest) -> Sql:
    """Give a source with two tables."""
    if kind == "postgres":
        server: EmbeddedPostgres = request.getfixturevalue("server")
        made = Sql(server.create_database("undelivered"))
    else:
        logged: MysqlProtocolServer = request.getfixturevalue(kind)
        made = Sql(logged.url())
    made.execute(*TABLES)
    return made


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory, kind: str, sql: Sql) -> Iterator[Admin]:
    made = Admin(tmp_path_factory.mktemp("undelivered"), {"SHOP_URL": sql.url})
    config = {
        "source": {
            "type": "postgres" if kind == "postgres" else "mysql",
            "url": "${env:SHOP_URL}",
            "tables": ["shop.*"],
            "heartbeat_s": 0.5,
        },
        "target": {"type": "delta", "path": "./lake"},
        "tables": {"shop.orders": {"partition_by": ["region"], "undeliverable": "set_aside"}},
        "retry": {"for_s": PATIENCE_S, "longest_s": 1, "ends": "replicator"},
        "spark": {"master": "local[1]", "driver_memory": "1g"},
    }
    try:
        made.serve()
        made.ask.does("PUT", f"{NS}/replicators/{NAME}", {"config": config, "start": True}, 201)
        seen(made, lambda: made.rows("shop.notes", ("id",)) == [(1,)], "the first copy")
        yield made
    finally:
        made.close()


def seen(admin: Admin, condition: Any, what: str) -> None:
    """Wait for what the replicator brings about; fail with everything that it said."""
    try:
        until(condition, what, 120, 0.2)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{admin.detail(NAME)}\n{admin.logs()}") from error


def letters(admin: Admin) -> list[str]:
    """Return the names of the letters that wait."""
    found = admin.ask.one(LETTERS)["letters"]
    return [f"{one['table']}@{one['scn']}" for one in found]


def orders(admin: Admin) -> dict[int, str]:
    return dict(admin.rows("shop.orders", ("id", "region")))


@req("C61", "C76")
def test_a_row_that_the_target_cannot_take_is_put_aside_replayed_and_discarded(
    admin: Admin, sql: Sql
) -> None:
    """No folder of a partition can be called like an empty text."""
    sql.execute("insert into shop.orders values (2, '')")
    sql.execute("insert into shop.orders values (3, 'south')")
    seen(admin, lambda: letters(admin), "a dead letter")
    seen(admin, lambda: orders(admin) == {1: "north", 3: "south"}, "the transaction behind it")
    (letter,) = letters(admin)
    shown = admin.ask.one(f"{LETTERS}/{letter}")
    assert shown["error"]["name"] == "UnplacedValue"
    (row,) = admin.ask.does("POST", f"{LETTERS}/{letter}/rows", None, 200)["rows"]
    assert (row["row"]["id"], row["row"]["region"]) == (2, "")
    assert "dead letter" in json.dumps(admin.ask.one("/v1/audit")), "who looked at rows is noted"
    seen(
        admin,
        lambda: admin.table(NAME, "shop.orders")["state"] == "FAILING",
        "a table that lacks something",
    )

    # The commands read what the control plane deployed.
    file = next((admin.state / "replicators").rglob("config-*.json"))
    (listed,) = admin.shows(f"dead-letters list {file}")
    assert (listed["table"], listed["scn"]) == (shown["table"], shown["scn"])
    assert "UnplacedValue" in admin.types(f"dead-letters show {file} {letter}")
    assert '"region": ""' in admin.types(f"dead-letters show {file} {letter} --rows")

    sql.execute("update shop.orders set region = 'west' where id = 2")
    admin.ask.does("POST", f"{LETTERS}/{letter}/replay", None, 200)
    seen(admin, lambda: not letters(admin), "the end of the replay")
    whole = {1: "north", 2: "west", 3: "south"}
    seen(admin, lambda: orders(admin) == whole, "the row as it is today")

    sql.execute("insert into shop.orders values (4, '')")
    seen(admin, lambda: letters(admin), "another")
    (other,) = letters(admin)
    admin.types(f"dead-letters discard {file} {other}")
    assert letters(admin) == []
    # The next batch says so; MySQL and MariaDB at rest have no sign of life in its log.
    sql.execute("insert into shop.notes values (7)", "delete from shop.notes where id = 7")
    seen(
        admin,
        lambda: admin.table(NAME, "shop.orders")["state"] == "REPLICATING",
        "a table that counts as whole",
    )
    assert orders(admin) == whole


@req("C10", "C60")
def test_story_04_what_fails_is_tried_for_as_long_as_was_asked_then_the_replicator_stops(
    admin: Admin, sql: Sql
) -> None:
    place = Path(admin.folder / "lake" / "shop" / "parcels")
    place.write_text("in the way")
    sql.execute("create table shop.parcels (id int primary key)")
    sql.execute("insert into shop.parcels values (1)")
    seen(admin, lambda: admin.detail(NAME)["state"] == "FAILED", "its end")
    reason = admin.detail(NAME)["reason"]
    assert "shop.parcels: given up after" in reason
    assert f"retry.for_s is {PATIENCE_S:g}" in reason
    assert admin.number(NAME, "headrace_errors_total", "shop.parcels") >= 3
    assert "given up after" in admin.types(f"replicators {NAME}").replace("\n", " ")

    # Whoever saw to it starts it again, and nothing was lost.
    place.unlink()
    sql.execute("insert into shop.notes values (2)")
    admin.types(f"start {NAME} --wait")
    seen(admin, lambda: admin.rows("shop.parcels", ("id",)) == [(1,)], "the table that waited")
    seen(admin, lambda: len(admin.rows("shop.notes", ("id",))) == 2, "what came meanwhile")
