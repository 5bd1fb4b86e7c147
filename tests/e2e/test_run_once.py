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
from headrace.state.store import RequestState, StateStore
from tests.e2e.pipeline import Pipeline
from tests.e2e.sources import on_each_source, run_at
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
insert into shop.orders values (900001, 1, 'placed', now(6), 10.5, null);
insert into shop.order_items values (900001, 1, 'SKU-1', 2, 5.25), (900001, 2, 'SKU-2', 1, 0);
update shop.products set stock = stock - 1 where sku in ('SKU-1', 'SKU-2');
commit;
update shop.accounts set code = 'moved' where code = 'ACC-1';
set statement binlog_row_image = minimal for update shop.accounts set balance = -1 where code = 'moved';
begin;
update shop.accounts set code = 'between' where code = 'ACC-2';
update shop.accounts set code = 'ACC-2' where code = 'ACC-3';
update shop.accounts set code = 'ACC-3' where code = 'between';
commit;
delete from shop.customers where id = 7;
insert into shop.customers values (7, 'again', null, 'NO', null, 0, true, now());
insert into shop.events select * from shop.events where customer_id = 3;
delete from shop.events where customer_id = 5;
truncate shop.flash_sales;
insert into shop.flash_sales values (1, 'SKU-9', 50, '12:00');
flush binary logs;
alter table shop.orders add column channel text default 'web';
update shop.orders set channel = 'shop' where id <= 10;
alter table shop.orders rename column channel to via;
update shop.orders set via = 'app' where id = 11;
alter table shop.products rename column description to story;
update shop.products set stock = stock + 1 where sku in ('SKU-4', 'SKU-5');
alter table shop.customers drop column email;
update shop.customers set balance = 1 where id = 9;
alter table shop.payments rename column details to facts;
rename table shop.seats to shop.stood;
create table shop.seats (place int primary key, holder text not null);
insert into shop.seats values (2, 'another'), (900, 'one more');
"""

CHANGES = {"postgres": ON_POSTGRES, "mysql": ON_MARIADB}
"""All of it while nobody captures: the catalog is ahead of everything that the log will tell."""


@on_each_source
@req("C24", "C45", "P25", "P31", "P17")
def test_once_copies_then_follows_and_verify_agrees(
    kind: str, shop_url: str, shop: Pipeline
) -> None:
    rows = shop_of(shop_url).fill(shop_url, 4_000)

    shop.succeed("preflight")
    shop.succeed("run", "--once")
    first = json.loads(shop.succeed("verify", "--json"))

    assert first["equal"]
    copied = {table["table"]: table["source_rows"] for table in first["tables"]}
    assert copied == {f"shop.{table}": count for table, count in rows.items()}

    run_at(shop_url, *(text for text in CHANGES[kind].split(";") if text.strip()))
    shop.succeed("dump start", "--table", "shop.customers", "--keys", "8", "--keys", "-1")
    shop.succeed("run", "--once")
    second = json.loads(shop.succeed("verify", "--json"))

    assert second["equal"], second
    names = {
        table: DeltaTable(table_path(shop.config.lake, TableId("shop", table)))
        .snapshot()
        .schema.names
        for table in ("orders", "products", "customers", "payments")
    }
    assert "via" in names["orders"]
    assert "story" in names["products"]
    assert "email" not in names["customers"]
    assert "facts" in names["payments"]
    with contextlib.closing(StateStore(shop.paths.database)) as state:
        repair = state.requests()[-1]
    assert (repair.state, repair.missing) == (RequestState.COMPLETED, (("-1",),))
    status = shop.status()
    assert {table["phase"] for table in status["tables"]} == {"live"}
    assert {role["state"] for role in status["roles"].values()} == {"stopped"}
    # How soon commits became visible is measured, kept and shown.
    shown = status["roles"]["apply"]["detail"]["freshness_s"]
    assert 0 < shown["p50"] <= shown["p95"] <= shown["p99"]
    batches = [json.loads(line) for line in shop.paths.freshness.read_text().splitlines()]
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
