"""The shop on PostgreSQL, as the traffic knows it."""

from __future__ import annotations

import random
from dataclasses import dataclass

import psycopg

from headrace.demo import schema
from headrace.demo.shopping import Shop, act
from headrace.demo.shops import ShopKind

__all__ = ["POSTGRES"]


@dataclass(slots=True)
class _Worker:
    url: str
    generator: random.Random
    rows: int
    number: int
    workers: int
    with_channel: bool = False
    shop: Shop | None = None

    def act(self) -> bool:
        if self.shop is None or self.shop.connection.closed:
            connection = psycopg.connect(self.url, autocommit=True, application_name="shop")
            if self.shop is None:
                self.shop = Shop(connection, self.generator, self.rows, self.number, self.workers)
            self.shop.connection = connection
        self.shop.with_channel = self.with_channel
        return act(self.shop)


def _fill(url: str, rows: int) -> dict[str, int]:
    with psycopg.connect(url) as connection:
        schema.create(connection)
        return dict(schema.load(connection, rows))


def _add_column(url: str) -> str:
    with psycopg.connect(url) as connection:
        connection.execute("set lock_timeout = '10s'")
        connection.execute("alter table shop.orders add column if not exists channel text")
    return "alter table shop.orders add column channel text"


def _change_much(url: str, rows: int) -> str:
    half = rows // 2
    with psycopg.connect(url) as connection:
        connection.execute(
            "insert into shop.order_items"
            " select 5000000000 + i, 1, 'SKU-1', 1, 9.99 from generate_series(1, %s) i"
            " on conflict do nothing",
            (half,),
        )
        done = connection.execute(
            "update shop.order_items set quantity = quantity + 1 where (order_id, line) in"
            " (select order_id, line from shop.order_items where order_id < 1000000000"
            "  order by order_id, line limit %s)",
            (half,),
        )
    return f"one transaction with {half + done.rowcount:,} changed rows"


def _empty_table(url: str) -> str:
    with psycopg.connect(url) as connection:
        connection.execute("truncate shop.flash_sales")
    return "truncate shop.flash_sales"


POSTGRES = ShopKind(
    schema.TABLES,
    _fill,
    _Worker,
    psycopg.OperationalError,
    psycopg.Error,
    _add_column,
    _change_much,
    _empty_table,
)
