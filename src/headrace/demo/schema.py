"""The shop: tables with every shape that makes change capture hard, and rows to begin with.

Rows are made by the server itself (``generate_series``), so half a million of them take seconds.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
from psycopg import sql

__all__ = ["SCHEMA", "TABLES", "create", "load", "sizes"]

SCHEMA = "shop"

_TABLES = """
create schema shop;
create type shop.order_status as enum ('placed', 'paid', 'shipped', 'returned');
create type shop.pay_method as enum ('card', 'transfer', 'voucher');

create table shop.customers (
    id bigint primary key,
    name text not null,
    email text,
    country text not null,
    born date,
    balance numeric(12, 2) not null,
    vip boolean not null,
    created_at timestamptz not null
);

-- Descriptions are long and kept out of line: an update that leaves them alone does not send them.
create table shop.products (
    sku text primary key,
    title text not null,
    price numeric(10, 2) not null,
    stock integer not null,
    weight_kg double precision,
    tags text[] not null,
    attributes jsonb,
    description text not null
);
alter table shop.products alter column description set storage external;

create table shop.orders (
    id bigint primary key,
    customer_id bigint not null,
    status shop.order_status not null,
    placed_at timestamptz not null,
    total numeric(12, 2) not null,
    note text
);

create table shop.order_items (
    order_id bigint,
    line smallint,
    sku text not null,
    quantity integer not null,
    price numeric(10, 2) not null,
    primary key (order_id, line)
);

create table shop.payments (
    id uuid primary key,
    order_id bigint not null,
    method shop.pay_method not null,
    amount numeric not null,
    paid_at timestamptz not null,
    details jsonb not null
);

-- No key: a multiset of rows, duplicates included.
create table shop.events (
    customer_id bigint not null,
    kind text not null,
    at timestamp not null,
    payload bytea
);
create index events_by_customer on shop.events (customer_id);
alter table shop.events replica identity full;

-- The key itself changes, rows are deleted and come back, and the statement is stored out of line.
create table shop.accounts (
    code text primary key,
    owner bigint not null,
    balance numeric(14, 4) not null,
    statement text not null
);
alter table shop.accounts alter column statement set storage external;

-- The key is checked at the end of a transaction, so whole blocks of seats may move at once.
create table shop.seats (
    place integer primary key deferrable initially deferred,
    holder text not null
);
alter table shop.seats replica identity full;

-- Small, and emptied from time to time.
create table shop.flash_sales (
    id integer primary key,
    sku text not null,
    percent smallint not null,
    until time not null
);
"""

TABLES = (
    "customers",
    "products",
    "orders",
    "order_items",
    "payments",
    "events",
    "accounts",
    "seats",
    "flash_sales",
)

_LOAD = {
    "customers": """
        select i, 'customer ' || i, case when i % 7 > 0 then 'c' || i || '@example.org' end,
               (array['DE','FR','PL','CZ','AT'])[1 + i % 5], date '1950-01-01' + (i % 20000)::int,
               (i % 100000) / 100.0, i % 50 = 0, timestamptz '2024-01-01' + i * interval '1 minute'
        from generate_series(1, {rows}) i""",
    "products": """
        select 'SKU-' || i, 'product ' || i, 1 + (i % 5000) / 10.0, i % 1000,
               case when i % 3 > 0 then (i % 97) / 7.0::float8 end,
               array['tag' || i % 10, 'a "quoted" tag'],
               case when i % 4 > 0 then jsonb_build_object('colour', i % 9, 'size', null) end,
               (select string_agg(md5(i::text || j), '') from generate_series(1, 80) j)
        from generate_series(1, {rows}) i""",
    "orders": """
        select i, 1 + i % {customers}, (enum_range(null::shop.order_status))[1 + i % 4],
               timestamptz '2025-01-01' + i * interval '7 seconds', (i % 90000) / 100.0,
               case when i % 10 = 0 then 'note ' || i end
        from generate_series(1, {rows}) i""",
    "order_items": """
        select 1 + i / 2, 1 + i % 2, 'SKU-' || 1 + i % {products}, 1 + i % 5, (i % 9000) / 100.0
        from generate_series(0, {rows} - 1) i""",
    "payments": """
        select md5(i::text)::uuid, i, (enum_range(null::shop.pay_method))[1 + i % 3],
               i * 1.000001, timestamptz '2025-01-01' + i * interval '9 seconds',
               jsonb_build_object('reference', md5(i::text), 'attempt', 1 + i % 3)
        from generate_series(1, {rows}) i""",
    # Every row stands there twice.
    "events": """
        select i % 500, 'kind ' || i % 5, timestamp '2025-06-01' + (i / 2) * interval '1 second',
               case when i % 3 > 0 then decode(md5((i / 2)::text), 'hex') end
        from generate_series(0, {rows} - 1) i""",
    "accounts": """
        select 'ACC-' || i, i, i / 3.0,
               (select string_agg(md5('a' || i || j), '') from generate_series(1, 80) j)
        from generate_series(1, {rows}) i""",
    "seats": "select i, 'guest ' || i from generate_series(1, {rows}) i",
    "flash_sales": """
        select i, 'SKU-' || i, 5 + i % 60, time '10:00' + i * interval '1 minute'
        from generate_series(1, {rows}) i""",
}

_SHARE = {
    "customers": 0.20,
    "products": 0.006,
    "orders": 0.26,
    "order_items": 0.42,
    "payments": 0.09,
    "events": 0.012,
    "accounts": 0.008,
    "seats": 0.002,
    "flash_sales": 0.0004,
}


def sizes(rows: int) -> dict[str, int]:
    """Return how many rows each table starts with when there are about ``rows`` in all."""
    return {table: max(20, int(rows * _SHARE[table])) for table in TABLES}


def create(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Create the empty tables; commits."""
    connection.execute(_TABLES)
    connection.commit()


def load(
    connection: psycopg.Connection[tuple[object, ...]], rows: int
) -> Iterator[tuple[str, int]]:
    """Fill the tables, yielding each table and its rows when it is committed."""
    wanted = sizes(rows)
    for table in TABLES:
        select = _LOAD[table].format(
            rows=wanted[table], customers=wanted["customers"], products=wanted["products"]
        )
        connection.execute(
            sql.SQL("insert into {} ").format(sql.Identifier(SCHEMA, table)).as_string(connection)
            + select
        )
        connection.commit()
        yield table, wanted[table]
    connection.execute(f"analyze {', '.join(f'{SCHEMA}.{table}' for table in TABLES)}")
    connection.commit()
