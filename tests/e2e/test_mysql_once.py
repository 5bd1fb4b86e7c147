"""``preflight``, ``run --once``, ``verify`` and ``dump`` on a shop of MySQL; `test_run_once` is the same on others."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from headrace.demo.shops import shop_of
from headrace.replicator.databases import open_database
from tests.e2e.databases import connected
from tests.e2e.pipeline import Pipeline
from tests.requirements import req

pytestmark = [pytest.mark.mysql, pytest.mark.spark, pytest.mark.timeout(1200)]

CHANGES = """
begin;
insert into orders values (900001, 1, 'placed', now(), 10.5, null);
insert into order_items values (900001, 1, 'SKU-1', 2, 5.25), (900001, 2, 'SKU-2', 1, 0);
update products set stock = stock - 1 where sku in ('SKU-1', 'SKU-2');
commit;
update accounts set code = 'moved' where code = 'ACC-1';
set session binlog_row_image = minimal;
update accounts set balance = -1 where code = 'moved';
begin;
update accounts set code = 'between' where code = 'ACC-2';
update accounts set code = 'ACC-2' where code = 'ACC-3';
update accounts set code = 'ACC-3' where code = 'between';
commit;
set session binlog_row_image = full;
delete from customers where id = 7;
insert into customers values (7, 'again', null, 'NO', null, 0, true, now());
delete from events where customer_id = 5;
truncate flash_sales;
insert into flash_sales values (1, 'SKU-9', 50, '12:00');
alter table orders add column channel text;
update orders set channel = 'web' where id <= 10;
flush binary logs;
update orders set channel = 'app' where id = 11;
alter table customers drop column email;
update customers set balance = 1 where id = 9;
update payments set amount = 1, details = json_set(details, '$.paid', true) where order_id <= 9
"""
"""All of it while nobody captures: the catalog is ahead of everything that the log will tell."""


def asked(pipeline: Pipeline) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(pipeline.succeed("verify", "--json"))
    return found


@req("P17", "C24", "P25")
@pytest.mark.parametrize("kind", ["mysql"])
def test_once_copies_then_follows_and_verify_agrees(shop_url: str, shop: Pipeline) -> None:
    rows = shop_of(shop_url).fill(shop_url, 4_000)
    shop.succeed("preflight")
    shop.succeed("run", "--once")
    first = asked(shop)
    assert first["equal"], first
    copied = {table["table"]: table["source_rows"] for table in first["tables"]}
    assert copied == {f"shop.{table}": count for table, count in rows.items()}

    with contextlib.closing(connected(shop_url)) as session, session.cursor() as cursor:
        cursor.execute("use shop")
        # As HeatWave has it: the log has only what changes in a document.
        cursor.execute("set session binlog_row_value_options = partial_json")
        cursor.execute("set session binlog_transaction_compression = on")
        for statement in CHANGES.split(";"):
            cursor.execute(statement)
    shop.succeed("dump start", "--table", "shop.customers", "--keys", "8", "--keys", "-1")
    shop.succeed("run", "--once")
    second = asked(shop)
    assert second["equal"], second
    assert len(second["tables"]) == len(open_database(shop.config).tables()) == len(rows)
