"""``run --once``, ``verify``, ``status`` and ``dump`` on a small busy-shaped shop."""

from __future__ import annotations

import contextlib
import json

import psycopg
import pytest

from headrace.demo.shops import shop_of
from headrace.lake.delta_log import DeltaTable
from headrace.lake.ledger import table_path
from headrace.model.schema import TableId
from headrace.state.store import RequestState, Scope, StateStore
from tests.e2e.databases import each_source, said
from tests.e2e.pipeline import Pipeline
from tests.requirements import req

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.timeout(1200)]

ON_POSTGRES = """
begin;
insert into shop.orders values (900001, 1, 'placed', now(), 10.5, null);
insert into shop.order_items values (900001, 1, 'SKU-1', 2, 5.25), (900001, 2, 'SKU-2', 1, 0);
update shop.products set stock = stock - 1 where sku in ('SKU-1', 'SKU-2');
commit;
update shop.accounts set code = 'moved' where code = 'ACC-1';
update shop.accounts set balance = -1 where code = 'moved';
begin;
update shop.accounts set code = 'between' where code = 'ACC-2';
update shop.accounts set code = 'ACC-2' where code = 'ACC-3';
update shop.accounts set code = 'ACC-3' where code = 'between';
commit;
delete from shop.customers where id = 7;
insert into shop.customers values (7, 'again', null, 'NO', null, 0, true, now());
update shop.seats set place = case when place = 1 then 4 else place - 1 end where place <= 4;
insert into shop.events select * from shop.events where customer_id = 3;
delete from shop.events where customer_id = 5;
truncate shop.flash_sales;
insert into shop.flash_sales values (1, 'SKU-9', 50, '12:00');
alter table shop.orders add column channel text;
update shop.orders set channel = 'web' where id <= 10;
alter table shop.orders rename column channel to via;
update shop.orders set via = 'app' where id = 11;
alter table shop.products rename column description to story;
update shop.products set stock = stock + 1 where sku in ('SKU-4', 'SKU-5');
alter table shop.customers drop column email;
update shop.customers set balance = 1 where id = 9;
begin;
update shop.payments set amount = 1 where order_id = 1;
alter table shop.payments rename column details to facts;
update shop.payments set facts = '{"paid": true}' where order_id = 2;
commit;
"""
ON_MARIADB = """
begin;
insert into shop.orders values (900001, 1, 'placed', now(), 10.5, null);
insert into shop.order_items values (900001, 1, 'SKU-1', 2, 5.25), (900001, 2, 'SKU-2', 1, 0);
update shop.products set stock = stock - 1 where sku in ('SKU-1', 'SKU-2');
commit;
set session binlog_row_image = minimal;
update shop.accounts set code = 'moved' where code = 'ACC-1';
update shop.accounts set balance = -1 where code = 'moved';
begin;
update shop.accounts set code = 'between' where code = 'ACC-2';
update shop.accounts set code = 'ACC-2' where code = 'ACC-3';
update shop.accounts set code = 'ACC-3' where code = 'between';
commit;
set session binlog_row_image = full;
delete from shop.customers where id = 7;
insert into shop.customers values (7, 'again', null, 'NO', null, 0, true, now());
update shop.seats set place = -place where place <= 4;
update shop.seats set place = if(place = -1, 4, -place - 1) where place < 0;
insert into shop.events select * from shop.events where customer_id = 3;
delete from shop.events where customer_id = 5;
truncate shop.flash_sales;
insert into shop.flash_sales values (1, 'SKU-9', 50, '12:00');
alter table shop.orders add column channel text;
update shop.orders set channel = 'web' where id <= 10;
alter table shop.orders rename column channel to via;
update shop.orders set via = 'app' where id = 11;
alter table shop.orders add column desk varchar(9) not null default 'first';
alter table shop.products rename column description to story;
alter table shop.products modify stock bigint not null;
update shop.products set stock = 5000000000 where sku in ('SKU-4', 'SKU-5');
alter table shop.customers drop column email;
update shop.customers set balance = 1 where id = 9;
update shop.payments set amount = 1 where order_id = 1;
alter table shop.payments add column facts json;
update shop.payments set facts = '{"paid": true}' where order_id = 2;
create table shop.fleeting (id int primary key);
insert into shop.fleeting values (1), (2);
create database away;
rename table shop.fleeting to away.fleeting;
create table shop.caterpillar (id int primary key);
insert into shop.caterpillar values (1), (2);
rename table shop.caterpillar to shop.butterfly;
insert into shop.butterfly values (3);
create table shop.phoenix (id int primary key);
insert into shop.phoenix values (1), (2);
drop table shop.phoenix;
create table shop.phoenix (id int primary key, v text);
insert into shop.phoenix values (2, 'again');
"""
"""All of it while nobody captures: the catalog is ahead of everything that the log will tell."""
CHANGES = {"postgres": ON_POSTGRES, "mariadb": ON_MARIADB}


@each_source(kinds=["postgres", "mariadb"])
@req("C24", "C45", "P25", "P31", "P17", "H11")
def test_once_copies_then_follows_and_verify_agrees(
    kind: str, shop_url: str, shop: Pipeline
) -> None:
    rows = shop_of(shop_url).fill(shop_url, 4_000)
    pipeline = shop

    pipeline.succeed("preflight")
    pipeline.succeed("run", "--once")
    first = json.loads(pipeline.succeed("verify", "--json"))

    assert first["equal"]
    copied = {table["table"]: table["source_rows"] for table in first["tables"]}
    assert copied == {f"shop.{table}": count for table, count in rows.items()}

    said(shop_url, *CHANGES[kind].strip().removesuffix(";").split(";\n"))
    pipeline.succeed("dump start", "--table", "shop.customers", "--keys", "8", "--keys", "-1")
    pipeline.succeed("run", "--once")
    second = json.loads(pipeline.succeed("verify", "--json"))

    assert second["equal"], second
    names = {
        table: DeltaTable(table_path(pipeline.config.lake, TableId("shop", table)))
        .snapshot()
        .schema.names
        for table in ("orders", "products", "customers", "payments")
    }
    assert "via" in names["orders"]
    assert "story" in names["products"]
    assert "email" not in names["customers"]
    assert "facts" in names["payments"]
    with contextlib.closing(StateStore(pipeline.paths.database)) as state:
        (repair,) = (r for r in state.requests() if r.scope is Scope.PRIMARY_KEYS)
    assert (repair.state, repair.missing) == (RequestState.COMPLETED, (("-1",),))
    status = pipeline.status()
    gone = {"shop.fleeting", "shop.caterpillar"} if kind == "mariadb" else set()
    left = {table["name"] for table in status["tables"] if table["phase"] == "left"}
    assert left == gone
    assert {t["phase"] for t in status["tables"] if t["name"] not in gone} == {"live"}
    assert {role["state"] for role in status["roles"].values()} == {"stopped"}
    # How soon commits became visible is measured, kept and shown.
    shown = status["roles"]["apply"]["detail"]["freshness_s"]
    assert 0 < shown["p50"] <= shown["p95"] <= shown["p99"]
    batches = [json.loads(line) for line in pipeline.paths.freshness.read_text().splitlines()]
    assert 0 < batches[-1]["scn"] <= status["frontier_scn"]


@req("C75")
def test_preflight_problems_stop_run_before_anything_is_created(
    url: str, pipeline: Pipeline
) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("create schema shop; create table shop.bare (a int)")

    done = pipeline.command("run", "--once")

    assert done.returncode == 1
    assert "shop.bare" in done.stdout
    assert "replica identity full" in done.stdout.lower()
    with psycopg.connect(url) as connection:
        assert connection.execute("select count(*) from pg_publication").fetchone() == (0,)
        assert connection.execute(
            "select count(*) from pg_replication_slots where database = current_database()"
        ).fetchone() == (0,)
    assert not pipeline.paths.changelog.exists()


@req("N08")
def test_a_table_that_only_a_person_mends_does_not_keep_the_run_from_ending(
    url: str, pipeline: Pipeline
) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("create schema shop")
        connection.execute('create table shop.odd (id int primary key, v text, "V" text)')
        connection.execute("create table shop.plain (id int primary key)")
        connection.execute("insert into shop.odd values (1, 'a', 'b')")
        connection.execute("insert into shop.plain values (1), (2)")

    done = pipeline.command("run", "--once", timeout_s=240)

    assert done.returncode == 2
    assert "All is copied but for shop.odd" in done.stderr
    assert "next step" in done.stderr
    plain = DeltaTable(table_path(pipeline.config.lake, TableId("shop", "plain"))).snapshot()
    assert plain.to_table(["id"]).num_rows == 2


@pytest.mark.long
@each_source()
@req("C101", "P17")
def test_tables_go_back_to_a_frontier_and_come_forward_again(
    kind: str, shop_url: str, shop: Pipeline
) -> None:
    def held() -> list[tuple[int, str]]:
        table = DeltaTable(table_path(shop.config.lake, TableId("shop", "t"))).snapshot()
        rows = table.to_table(["id", "v"]).to_pylist()
        return sorted((row["id"], row["v"]) for row in rows)

    said(
        shop_url,
        "create schema shop",
        "create table shop.t (id int primary key, v varchar(9) not null)",
        "insert into shop.t values (1, 'a'), (2, 'b'), (3, 'c')",
    )
    shop.succeed("run", "--once")
    first, before = shop.frontier(), held()
    said(
        shop_url,
        "update shop.t set v = 'z' where id = 1",
        "delete from shop.t where id = 2",
        "update shop.t set id = 30 where id = 3",
    )
    shop.succeed("run", "--once")
    after = held()
    assert after != before
    shop.succeed("rewind", "--to", str(first))
    assert held() == before
    shop.succeed("run", "--once")
    assert held() == after
    assert json.loads(shop.succeed("verify", "--json"))["equal"]
