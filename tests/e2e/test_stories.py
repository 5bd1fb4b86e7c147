"""The user stories of the Replicator's design, against one running control plane with PostgreSQL and Spark.

They are told in an order in which one start of Spark serves most of them; each says which story it is.

Source: docs/requirements.md, section on seed 004; its user stories 1 to 17.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.lake.delta_log import DeltaTable
from headrace.testing.postgres import EmbeddedPostgres
from tests.e2e.admin import NS, Admin
from tests.e2e.pipeline import contents
from tests.replicator.lineage.openlineage import faults_of
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.timeout(900)]

TABLES = """
create schema shop;
create table shop.orders (id int primary key, total numeric(10,2));
create table shop.customers (id int primary key, name text, email text, phone text, password text);
create table shop.notes (note text);
create table shop.sessions (id int primary key);
alter table shop.notes replica identity full;
insert into shop.orders select n, n from generate_series(1, 50) n;
insert into shop.customers
    select n, 'n' || n, 'e' || n || '@example.org', n, 'secret-of-customers' from generate_series(1, 5) n;
insert into shop.notes select 'same' from generate_series(1, 4);
insert into shop.sessions select n from generate_series(1, 5) n;
"""
SHOP = "shop"


class Source:
    """The database of the stories, and who writes to it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = psycopg.connect(url, autocommit=True)

    def does(self, sql: str) -> None:
        self.connection.execute(sql.encode())

    def asks(self, sql: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql.encode()).fetchall()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Insert, change and delete rows of both kinds of table until the block ends."""
        stop = threading.Event()

        def write() -> None:
            with psycopg.connect(self.url, autocommit=True) as connection:
                for n in range(1_000, 100_000):
                    connection.execute("insert into shop.orders values (%s, 1)", (n,))
                    connection.execute("update shop.orders set total = 2 where id = %s", (n,))
                    connection.execute(
                        "insert into shop.notes values ('same'), (%s)", (str(n % 7),)
                    )
                    if n % 3 == 0:
                        connection.execute("delete from shop.orders where id = %s", (n - 2,))
                    if stop.wait(0.02):
                        return

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


@pytest.fixture(scope="module")
def source(server: EmbeddedPostgres) -> Iterator[Source]:
    made = Source(server.create_database("stories"))
    made.does(TABLES)
    yield made
    made.connection.close()


def configuration(**also: Any) -> dict[str, Any]:
    return {
        "source": {
            "type": "postgres",
            "url": "${env:SHOP_URL}",
            "tables": ["shop.*"],
            "exclude": ["shop.sessions"],
            "columns": {"shop.customers": {"exclude": ["password"]}},
            "heartbeat_s": 0.5,
        },
        "target": {"type": "delta", "path": "./lake"},
        "tables": {
            "shop.customers": {
                "rename": {"name": "full_name"},
                "mask": {"email": "sha2(email, 256)"},
                "compute": {"domain": "substring_index(email, '@', -1)"},
            }
        },
        "changes": {"dropped_table": "drop"},
        "dump": {"load": 1},
        "spark": {"master": "local[1]", "driver_memory": "1g"},
        "objective": {"share": 0.9, "within_s": 300},
        "lineage": {"file": "./lineage.ndjson"},
        **also,
    }


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory, source: Source) -> Iterator[Admin]:
    """A control plane with one running replicator, whose tables are copied."""
    folder: Path = tmp_path_factory.mktemp("admin")
    made = Admin(folder, {"SHOP_URL": source.url})
    try:
        made.serve()
        body = {"config": configuration(), "start": True}
        made.ask.does("PUT", f"{NS}/replicators/{SHOP}", body, 201)
        until(lambda: live(made) == 3, "the first copy", 200)
        yield made
    finally:
        made.close()


def live(admin: Admin) -> int:
    found = admin.detail(SHOP)
    assert found["state"] in ("STARTING", "RUNNING"), f"{found['reason']}\n{admin.logs()}"
    return sum(one["phase"] == "live" for one in found["table_list"])


def equal(admin: Admin, source: Source) -> bool:
    """Whether orders and notes are the source's, row by row."""
    return admin.rows("shop.orders", ("id", "total")) == sorted(
        source.asks("select id, total from shop.orders")
    ) and admin.rows("shop.notes", ("note",)) == sorted(source.asks("select note from shop.notes"))


def caught_up(admin: Admin, source: Source) -> None:
    seen(admin, lambda: equal(admin, source), "equal tables")


def seen(admin: Admin, condition: Callable[[], object], what: str, timeout_s: float = 120) -> None:
    """Wait for what the running replicator brings about; fail with everything that it said."""
    try:
        until(condition, what, timeout_s, 0.2)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{admin.detail(SHOP)}\n{admin.logs()}") from error


def of_design(source: str, target: str) -> dict[str, Any]:
    """Return a configuration in the design's form, as its own tool would write it."""
    properties = {"host": "db", "port": "1521", "user": "repl", "password": "${secure(key)}"}
    stages = (("s", source, "cdcSource", properties), ("t", target, "cdcTarget", {"path": "/lake"}))
    return {
        "stages": [
            {"name": name, "plugin": {"name": plugin, "type": kind, "properties": held}}
            for name, plugin, kind, held in stages
        ],
        "connections": [{"from": "s", "to": "t"}],
    }


@req("C07", "C22")
@pytest.mark.parametrize("name", ["oracle", "sqlserver"])
def test_story_01_a_source_that_is_not_there_is_a_named_problem(name: str, admin: Admin) -> None:
    problem = admin.problems(of_design(name, "delta"))["plugin-unknown"]
    assert problem["severity"] == "ERROR"
    assert name in problem["description"]
    assert "postgres" in problem["suggestion"]


@req("C08", "C22")
@pytest.mark.parametrize("name", ["bigquery", "spanner", "redshift", "snowflake"])
def test_story_02_a_warehouse_that_is_not_there_is_a_named_problem(name: str, admin: Admin) -> None:
    problem = admin.problems(of_design("postgres", name))["plugin-unknown"]
    assert problem["severity"] == "ERROR"
    assert name in problem["description"]
    assert "duckdb" in problem["suggestion"]


@req("C21")
def test_story_15_the_set_up_of_the_database_is_documented(admin: Admin, source: Source) -> None:
    page = (Path(__file__).parents[2] / "docs" / "postgres.md").read_text(encoding="utf-8")
    (statements,) = re.findall(r"<!-- tested: setup -->\n```sql\n(.*?)```", page, re.DOTALL)
    written = re.findall(r"^.*(?:\n    .*)*;$", statements, re.MULTILINE)
    # A schema with the tables that the page speaks of, and a role that has nothing yet.
    source.does("create table public.customers (id int primary key)")
    source.does("create table public.orders (id int primary key)")
    source.does("create role headrace_reader login")
    url = source.url.replace("postgresql://postgres", "postgresql://headrace_reader")
    assert url != source.url
    named = {"slot": "headrace_slot", "publication": "headrace_pub"}
    config = configuration(
        source={"type": "postgres", "url": url, "tables": ["public.*"], **named}, tables={}
    )
    lacking = errors(admin.problems(config))
    assert {"role-not-replication", "publication-missing", "slot-missing"} <= lacking
    assert "REPLICATION" in written[0]
    source.does("drop role headrace_reader")
    for statement in written:
        source.does(statement)
    assert errors(admin.problems(config)) == set()
    source.does("select pg_drop_replication_slot('headrace_slot')")


@req("C22", "C96")
def test_story_16_a_replicator_is_tested_before_it_runs(admin: Admin, source: Source) -> None:
    wrong = {
        "type": "postgres",
        "url": "postgresql://nobody@127.0.0.1:1/shop",
        "tables": ["shop.*"],
    }
    assert errors(admin.problems(configuration(source=wrong, tables={})))
    source.does("create table public.bag (note text)")
    bag = {"type": "postgres", "url": "${env:SHOP_URL}", "tables": ["public.bag"]}
    config = configuration(source=bag, tables={})
    admin.ask.does("PUT", f"{NS}/drafts/bag", {"config": config}, 201)
    (found,) = (
        one for one in admin.shows("draft assess bag")["features"] if one["severity"] == "ERROR"
    )
    assert found["table"] == "public.bag"
    # The statement that it suggests is the remedy.
    statement = re.search(r"ALTER TABLE [^;…]+;", found["suggestion"])
    assert statement, found["suggestion"]
    source.does(statement[0])
    assert errors(admin.problems(config)) == set()
    admin.types("draft delete bag")
    source.does("drop table public.bag")


@req("C18", "C01")
def test_story_12_a_part_of_the_source_is_replicated(admin: Admin, source: Source) -> None:
    names = {one["name"] for one in admin.detail(SHOP)["table_list"]}
    assert names == {"shop.orders", "shop.customers", "shop.notes"}
    lake = admin.folder / "lake" / "shop"
    assert {path.name for path in lake.iterdir()} == {"orders", "customers", "notes"}
    columns = DeltaTable(lake / "customers").snapshot().schema.names
    assert columns == ["id", "full_name", "email", "phone", "domain"]
    # All of them by one file and one start.
    keys = {"orders": "id", "customers": "id", "notes": "note"}
    rows = {table: len(admin.rows(f"shop.{table}", (key,))) for table, key in keys.items()}
    assert rows == {"orders": 50, "customers": 5, "notes": 4}
    # Neither the table nor the column ever leaves the source.
    for segment, held in contents(admin.state / "replicators"):
        assert b"secret-of-customers" not in held, segment
    published = source.asks("select tablename from pg_publication_tables")
    assert ("sessions",) not in published


@req("C15", "C36", "C74", "C78")
def test_story_09_how_quickly_events_are_replicated_is_measured(
    admin: Admin, source: Source
) -> None:
    before = admin.number(SHOP, "headrace_changes_total", "shop.orders")
    source.does("insert into shop.orders select n, 0 from generate_series(101, 120) n")
    source.does("update shop.orders set total = 3 where id in (101, 102)")
    source.does("delete from shop.orders where id = 120")

    def counted() -> bool:
        return admin.number(SHOP, "headrace_changes_total", "shop.orders") >= before + 23

    seen(admin, counted, "the changes counted")
    for metric, value in (
        ("headrace_inserts_total", 20),
        ("headrace_updates_total", 2),
        ("headrace_deletes_total", 1),
        ("headrace_copied_rows_total", 50),
        ("headrace_freshness_seconds_count", 3),
    ):
        assert admin.number(SHOP, metric, "shop.orders") == value, metric
    assert admin.number(SHOP, "headrace_bytes_total", "shop.orders") > 0
    # The first copy: how far it is, and that it has ended.
    copied = admin.table(SHOP, "shop.orders")
    assert (copied["phase"], copied["rows_read"], copied["seconds_left"]) == ("live", 50, None)
    assert 0 < admin.number(SHOP, "headrace_freshness_seconds_sum", "shop.orders") < 180
    # The same as Prometheus reads it, and minute by minute.
    scraped = admin.types(f"metrics {SHOP}")
    assert (
        f'headrace_inserts_total{{replicator="{SHOP}",namespace="default",table="shop.orders"}} 20'
        in scraped
    )
    minutes = admin.shows(f"activity {SHOP} --table shop.orders")["minutes"]
    assert sum(one["inserts"] for one in minutes) == 20
    assert max(one["changes_per_s"] for one in minutes) > 0
    assert "shop.orders" in admin.types(f"activity {SHOP}")
    hours = admin.shows(f"activity {SHOP} --table shop.orders --hours 24")["hours"]
    assert sum(one["inserts"] for one in hours) == 20


@req("C09", "C03")
def test_story_03_the_share_that_is_replicated_in_time_is_known(
    admin: Admin, source: Source
) -> None:
    objective = admin.detail(SHOP)["objective"]
    assert (objective["share"], objective["within_s"]) == (0.9, 300.0)
    assert objective["seen"] >= 3
    assert objective["attained"] == 1.0
    assert objective["missed"] is False
    assert admin.number(SHOP, "headrace_objective_attained") == 1
    assert "90 % within 300 s" in " ".join(admin.types(f"replicators {SHOP}").split())


@req("C14")
def test_story_08_how_far_behind_each_table_is_can_be_told(admin: Admin, source: Source) -> None:
    caught_up(admin, source)
    os.kill(admin.pid(SHOP, "apply"), signal.SIGSTOP)
    try:
        source.does("insert into shop.orders select n, 0 from generate_series(201, 230) n")
        behind = until(lambda: lagging(admin, "shop.orders"), "the table behind", 30, 0.1)
        assert behind["lag_changes"] == 30
        until(lambda: lagging(admin, "shop.orders")["lag_s"] > behind["lag_s"], "a lag that grows")
        assert admin.table(SHOP, "shop.customers")["lag_changes"] == 0
        whole = admin.shows(f"replicators {SHOP}")
        assert whole["lag_changes"] == 30
        assert whole["lag_s"] > 0
    finally:
        os.kill(admin.pid(SHOP, "apply"), signal.SIGCONT)
    caught_up(admin, source)
    until(lambda: not lagging(admin, "shop.orders"), "no lag", 30)


@req("C16")
def test_story_10_a_replicator_is_paused_and_resumed(admin: Admin, source: Source) -> None:
    admin.types(f"pause {SHOP} --wait")
    until(lambda: admin.detail(SHOP)["log_paused"], "that it is paused")
    # The page has what was ordered; capture itself says when it stands still.
    until(lambda: admin.doing(SHOP) == "log paused", "that capture has heard it")
    scn = until(lambda: standing(admin), "a log that stands still", 30, 0.5)
    source.does("update shop.orders set total = 4 where id = 1")
    (later,) = source.asks("select pg_current_wal_lsn() - '0/0'::pg_lsn")
    # Heartbeats come twice a second: a log that was not paused would have covered the update.
    until(lambda: admin.detail(SHOP)["slot"]["unread_bytes"] > 0, "changes that wait at the source")
    assert admin.detail(SHOP)["positions"]["captured_scn"] == scn < later[0]
    assert dict(admin.rows("shop.orders", ("id", "total")))[1] != 4
    admin.types(f"resume {SHOP} --wait")
    caught_up(admin, source)
    assert dict(admin.rows("shop.orders", ("id", "total")))[1] == 4


@req("C04", "C05", "C06", "C19", "C30")
def test_story_13_ddl_is_replicated(admin: Admin, source: Source) -> None:
    emptied = admin.number(SHOP, "headrace_truncates_total", "shop.notes")
    source.does("alter table shop.orders add column note text default 'none'")
    source.does("alter table shop.orders alter column id type bigint")
    source.does("alter table shop.customers rename column phone to telephone")
    source.does("update shop.orders set note = 'seen' where id = 2")
    source.does("update shop.customers set telephone = '7' where id = 1")
    source.does("truncate shop.notes")
    source.does("create table shop.visits (id int primary key)")
    source.does("insert into shop.visits values (1)")
    caught_up(admin, source)
    seen(admin, lambda: admin.rows("shop.visits", ("id",)) == [(1,)], "the table that came")

    def notes() -> bool:
        return admin.rows("shop.orders", ("id", "note")) == sorted(
            source.asks("select id, note from shop.orders")
        )

    seen(admin, notes, "the column that came")
    source.does("drop table shop.visits")
    gone = admin.folder / "lake" / "shop" / "visits"
    seen(admin, lambda: not gone.exists(), "the end of the table that went")

    def counted() -> float:
        return admin.number(SHOP, "headrace_truncates_total", "shop.notes") - emptied

    # A page is up to a second old, and may be from before all of it.
    seen(admin, counted, "the truncate counted")
    assert counted() == 1
    assert admin.number(SHOP, "headrace_ddl_total", "shop.orders") >= 2


@req("C11", "C20")
def test_story_05_failures_are_counted_and_story_14_the_logs_say_why(
    admin: Admin, source: Source
) -> None:
    place = admin.folder / "lake" / "shop" / "parcels"
    place.write_text("in the way")
    source.does("create table shop.parcels (id int primary key)")
    source.does("insert into shop.parcels values (1)")
    seen(admin, lambda: failures(admin, "shop.parcels") >= 1, "a failure that is counted")

    def why() -> Any:
        state = admin.ask.does("POST", f"{NS}/getState", {"name": SHOP}, 200)
        (found,) = (one for one in state["tables"] if one["table"] == "parcels")
        assert found["state"] == "FAILING"
        # The frontier says so at once, the job why, at most every half second.
        return found["error"]

    assert "shop.parcels" in until(why, "the reason", 60)["message"]
    # The others go on.
    source.does("insert into shop.orders (id, total) values (300, 1)")
    caught_up(admin, source)
    before = failures(admin, "shop.parcels")
    assert admin.number(SHOP, "headrace_errors_total", "shop.orders") == 0
    assert admin.number(SHOP, "headrace_replicator_errors_total") >= before
    lines = admin.shows(f"logs {SHOP} --process apply --table shop.parcels --level warning")[
        "lines"
    ]
    assert any("cannot be written" in line for line in lines), lines
    kept = admin.types(f"logs {SHOP} --process apply --table shop.parcels --all --ndjson")
    told = [json.loads(line) for line in kept.splitlines()]
    assert all("shop.parcels" in one["message"] for one in told)
    assert {"WARNING"} == {one["level"] for one in told if "cannot be written" in one["message"]}
    place.unlink()
    seen(admin, lambda: admin.rows("shop.parcels", ("id",)) == [(1,)], "the table that recovers")
    until(lambda: admin.table(SHOP, "shop.parcels")["state"] == "REPLICATING", "its state")
    assert failures(admin, "shop.parcels") >= before


@req("C23", "C73")
def test_story_17_each_column_of_a_target_leads_back_to_its_source(
    admin: Admin, source: Source
) -> None:
    shown = admin.shows(f"lineage {SHOP} --table shop.customers")
    (table,) = shown["tables"]
    made = {one["column"]: (one["how"], one["inputs"]) for one in table["columns"]}
    assert made["email"] == ("masked", ["email"])
    assert made["domain"] == ("computed", ["email"])
    assert made["full_name"] == ("identity", ["name"])
    # Under the name that it has at the source by now.
    assert made["telephone"] == ("identity", ["telephone"])
    assert "shop.customers" in admin.types(f"lineage {SHOP}")
    lines = (admin.folder / "lineage.ndjson").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert [faults_of(one) for one in events] == [[]] * len(events)
    assert events[0]["eventType"] == "START"
    assert {one["eventType"] for one in events[1:]} == {"RUNNING"}
    named = [columns_of(one, "lake/shop/orders") for one in events]
    assert named[-1]["note"] == ["note"], "the column that came by DDL"
    assert any("id" in one and "note" not in one for one in named), "the table before it"


@req("C12", "C13")
def test_story_06_and_07_a_crash_loses_no_event_and_doubles_none(
    admin: Admin, source: Source
) -> None:
    with source.busy():
        for victim in ("capture", "apply"):
            pid = admin.pid(SHOP, victim)
            os.kill(pid, signal.SIGKILL)
            seen(admin, partial(replaced, admin, victim, pid), f"a new {victim}")
        # The control plane dies too, and its successor looks after the same process.
        run = admin.pid(SHOP, "run")
        admin.kill_server()
        admin.serve()
        # It answers before it has looked for the processes of the one before.
        seen(admin, lambda: admin.detail(SHOP)["pid"], "the process that it found")
        assert admin.detail(SHOP)["pid"] == run
    caught_up(admin, source)
    # Equal rows of a table without a key are counted: nothing is there twice, nothing is missing.
    (count,) = source.asks("select count(*) from shop.notes")
    assert len(admin.rows("shop.notes", ("note",))) == count[0] > 10


@req("C17")
def test_story_11_a_replicator_is_deleted(admin: Admin, source: Source) -> None:
    slots = "select slot_name from pg_replication_slots where slot_name = 'headrace_shop'"
    assert source.asks(slots)
    admin.types(f"delete {SHOP} --target drop --wait")
    assert source.asks(slots) == []
    assert source.asks("select 1 from pg_publication where pubname = 'headrace_shop'") == []
    assert list((admin.state / "replicators").rglob("config-*.json")) == []
    assert not (admin.folder / "lake" / "shop" / "orders").exists()
    assert admin.shows("replicators") == []
    last = json.loads((admin.folder / "lineage.ndjson").read_text().splitlines()[-1])
    assert last["eventType"] == "COMPLETE"


def errors(problems: dict[str, dict[str, Any]]) -> set[str]:
    return {name for name, problem in problems.items() if problem["severity"] == "ERROR"}


def lagging(admin: Admin, table: str) -> dict[str, Any]:
    """Return what is told of a table that is behind, nothing when it is not."""
    found = admin.table(SHOP, table)
    return found if found["lag_changes"] and found["lag_s"] else {}


def replaced(admin: Admin, role: str, pid: int) -> bool:
    """Whether another process has taken over."""
    return admin.pid(SHOP, role) != pid


def standing(admin: Admin) -> int:
    """Return the position of a log that two looks find unchanged, 0 otherwise."""
    first = admin.detail(SHOP)
    until(lambda: admin.detail(SHOP)["seen_ms"] > first["seen_ms"], "another look")
    scn: int = first["positions"]["captured_scn"]
    return scn if admin.detail(SHOP)["positions"]["captured_scn"] == scn else 0


def failures(admin: Admin, table: str) -> float:
    return admin.number(SHOP, "headrace_errors_total", table)


def columns_of(event: dict[str, Any], table: str) -> dict[str, list[str]]:
    """Return the columns that an event tells of a target table, with what they are made of."""
    fields: dict[str, Any] = next(
        (
            one["facets"]["columnLineage"]["fields"]
            for one in event["outputs"]
            if one["name"].endswith(table)
        ),
        {},
    )
    return {name: [one["field"] for one in of["inputFields"]] for name, of in fields.items()}
