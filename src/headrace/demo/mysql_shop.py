"""The shop on MySQL and MariaDB: the same tables and the same customers, in these servers' words.

Keys are checked row by row here, so a block of seats moves by way of places below zero.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import pymysql

from headrace.demo.schema import TABLES, sizes
from headrace.demo.shops import ShopKind

__all__ = ["MYSQL"]

_TABLES = (
    "CREATE DATABASE shop CHARACTER SET utf8mb4",
    """CREATE TABLE shop.customers (
        id bigint PRIMARY KEY, name varchar(200) NOT NULL, email varchar(200), country varchar(20) NOT NULL, born date,
        balance decimal(12, 2) NOT NULL, vip boolean NOT NULL, created_at timestamp NOT NULL)""",
    """CREATE TABLE shop.products (
        sku varchar(40) PRIMARY KEY, title varchar(200) NOT NULL, price decimal(10, 2) NOT NULL, stock int NOT NULL,
        weight_kg double, tags set('new', 'red', 'a "quoted" tag') NOT NULL, attributes json, description text NOT NULL
        )""",
    """CREATE TABLE shop.orders (
        id bigint PRIMARY KEY, customer_id bigint NOT NULL,
        status enum('placed', 'paid', 'shipped', 'returned') NOT NULL, placed_at datetime(6) NOT NULL,
        total decimal(12, 2) NOT NULL, note text)""",
    """CREATE TABLE shop.order_items (
        order_id bigint, line smallint, sku varchar(40) NOT NULL, quantity int NOT NULL, price decimal(10, 2) NOT NULL,
        PRIMARY KEY (order_id, line))""",
    """CREATE TABLE shop.payments (
        id binary(16) PRIMARY KEY, order_id bigint NOT NULL, method enum('card', 'transfer', 'voucher') NOT NULL,
        amount decimal(40, 6) NOT NULL, paid_at timestamp(3) NOT NULL, details json NOT NULL)""",
    # No key: a multiset of rows, duplicates included. Where such a table cannot be copied it has a number out of sight.
    """CREATE TABLE shop.events (
        customer_id bigint NOT NULL, kind varchar(40) NOT NULL, at datetime NOT NULL, payload blob,{number}
        KEY (customer_id))""",
    # The key itself changes, rows are deleted and come back. Its collation takes small and large letters for one.
    """CREATE TABLE shop.accounts (
        code varchar(60) PRIMARY KEY, owner bigint NOT NULL, balance decimal(14, 4) NOT NULL, statement text NOT NULL
        )""",
    "CREATE TABLE shop.seats (place int PRIMARY KEY, holder text NOT NULL)",
    """CREATE TABLE shop.flash_sales (
        id int PRIMARY KEY, sku varchar(40) NOT NULL, percent smallint NOT NULL, until time(1) NOT NULL)""",
)

_NUMBER = " number bigint AUTO_INCREMENT INVISIBLE PRIMARY KEY,"

_LOAD = {
    "customers": """SELECT seq, CONCAT('customer ', seq), IF(seq % 7 > 0, CONCAT('c', seq, '@example.org'), NULL),
        ELT(1 + seq % 5, 'DE', 'FR', 'PL', 'CZ', 'AT'), DATE '1950-01-01' + INTERVAL seq % 20000 DAY,
        seq % 100000 / 100, seq % 50 = 0, TIMESTAMP '2024-01-01 00:00:00' + INTERVAL seq MINUTE""",
    "products": """SELECT CONCAT('SKU-', seq), CONCAT('product ', seq), 1 + seq % 5000 / 10, seq % 1000,
        IF(seq % 3 > 0, seq % 97 / 7e0, NULL), seq % 8, IF(seq % 4 > 0, JSON_OBJECT('colour', seq % 9), NULL),
        REPEAT(LEFT(SHA2(seq, 256), 32), 80)""",
    "orders": """SELECT seq, 1 + seq % {customers}, 1 + seq % 4,
        TIMESTAMP '2025-01-01 00:00:00' + INTERVAL seq * 7 SECOND, seq % 90000 / 100,
        IF(seq % 10 = 0, CONCAT('note ', seq), NULL)""",
    "order_items": """SELECT 1 + (seq - 1) DIV 2, 1 + seq % 2, CONCAT('SKU-', 1 + seq % {products}), 1 + seq % 5,
        seq % 9000 / 100""",
    "payments": """SELECT UNHEX(LEFT(SHA2(seq, 256), 32)), seq, 1 + seq % 3, seq * 1.000001,
        TIMESTAMP '2025-01-01 00:00:00' + INTERVAL seq * 9 SECOND, JSON_OBJECT('attempt', 1 + seq % 3)""",
    # Every row stands there twice.
    "events": """SELECT seq DIV 2 % 500, CONCAT('kind ', seq DIV 2 % 5),
        TIMESTAMP '2025-06-01 00:00:00' + INTERVAL seq DIV 2 SECOND,
        IF(seq DIV 2 % 3 > 0, UNHEX(LEFT(SHA2(seq DIV 2, 256), 32)), NULL)""",
    "accounts": "SELECT CONCAT('ACC-', seq), seq, seq / 3, REPEAT(LEFT(SHA2(CONCAT('a', seq), 256), 32), 80)",
    "seats": "SELECT seq, CONCAT('guest ', seq)",
    "flash_sales": """SELECT seq, CONCAT('SKU-', seq), 5 + seq % 60,
        TIME '10:00:00' + INTERVAL seq % 600 MINUTE""",
}

# Deadlock, waited too long, the row changed since: the transaction lost. A key that is taken says so otherwise.
_LOST = frozenset({1205, 1213, 1020})


def _connect(url: str) -> pymysql.Connection[Any]:
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        charset="utf8mb4",
        init_command="SET SESSION time_zone = '+00:00', innodb_lock_wait_timeout = 5",
    )


def _run(url: str, *statements: str) -> int:
    """Run statements in one transaction; return how many rows the last one changed."""
    changed = 0
    with contextlib.closing(_connect(url)) as connection, connection.cursor() as cursor:
        for statement in statements:
            changed = cursor.execute(statement)
        connection.commit()
    return changed


def _fill(url: str, rows: int) -> dict[str, int]:
    wanted = sizes(rows)
    with contextlib.closing(_connect(url)) as connection:
        number = "" if "mariadb" in connection.get_server_info().lower() else _NUMBER
    _run(url, *(statement.replace("{number}", number) for statement in _TABLES))
    for table, select in _LOAD.items():
        made = select.format(**wanted)
        columns = "(customer_id, kind, at, payload)" if table == "events" else ""
        _run(url, f"INSERT INTO shop.{table} {columns} {made} FROM {_counted(wanted[table])}")
    return wanted


def _counted(last: int) -> str:
    """Return a table of the numbers ``seq`` from 1 on, for a clause FROM."""
    digits = " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10))
    places = range(len(str(last)))
    number = " + ".join(f"{10**place} * d{place}.d" for place in places)
    tables = ", ".join(f"({digits}) d{place}" for place in places)
    return f"(SELECT {number} AS seq FROM {tables}) counted WHERE seq BETWEEN 1 AND {last}"


@dataclass(slots=True)
class _Worker:
    """One worker; new order numbers of two workers never meet."""

    url: str
    random: random.Random
    rows: int
    number: int
    workers: int
    with_channel: bool = False
    start: dict[str, int] = field(init=False)
    next_order: int = field(init=False)
    placed: list[int] = field(default_factory=list)
    connection: pymysql.Connection[Any] | None = None

    def __post_init__(self) -> None:
        self.start = sizes(self.rows)
        self.next_order = 1_000_000_000 + self.number

    def act(self) -> bool:
        action = self.random.choices(_FUNCTIONS, _WEIGHTS)[0]
        try:
            if self.connection is None:
                self.connection = _connect(self.url)
            self.connection.begin()
            if action(self):
                self.connection.commit()
            else:
                self.connection.rollback()
        except pymysql.err.MySQLError as error:
            lost = isinstance(error, pymysql.err.IntegrityError) or error.args[0] in _LOST
            if lost and self.connection is not None:
                self.connection.rollback()
                return False
            if self.connection is not None:
                self.connection._force_close()
            self.connection = None
            raise
        return True

    def run(self, statement: str, *values: object) -> None:
        """Run one statement."""
        assert self.connection is not None
        with self.connection.cursor() as cursor:
            cursor.execute(statement, values)

    def any(self, table: str) -> int:
        """Return a number from 1 to the table's first size."""
        return self.random.randint(1, self.start[table])

    def sku(self) -> str:
        """Return a product's key."""
        return f"SKU-{self.any('products')}"

    def account(self) -> str:
        """Return the key of an account that may have moved away."""
        return f"ACC-{self.any('accounts')}"


@contextlib.contextmanager
def _image(shop: _Worker, image: str) -> Iterator[None]:
    """Let the log have less than whole rows of one statement."""
    shop.run(f"SET SESSION binlog_row_image = {image}")
    try:
        yield
    finally:
        # An insert in this form would lack values: whatever happened, whole rows from here on.
        shop.run("SET SESSION binlog_row_image = FULL")


def _place_order(shop: _Worker) -> bool:
    order, shop.next_order = shop.next_order, shop.next_order + shop.workers
    customer, total = shop.any("customers"), shop.random.randint(100, 99_999) / 100
    channel = ", channel = 'web'" if shop.with_channel else ""
    shop.run(
        "INSERT INTO shop.orders SET id = %s, customer_id = %s, status = 'placed', placed_at = NOW(6), "
        f"total = %s{channel}",
        order,
        customer,
        total,
    )
    # In key order: two orders of the same goods then wait for each other instead of deadlocking.
    for line, sku in enumerate(sorted({shop.sku(), shop.sku()}), start=1):
        shop.run("INSERT INTO shop.order_items VALUES (%s, %s, %s, 1, %s)", order, line, sku, total)
        shop.run("UPDATE shop.products SET stock = stock - 1 WHERE sku = %s", sku)
    shop.run(
        "INSERT INTO shop.payments VALUES (%s, %s, 'card', %s, NOW(3), JSON_OBJECT('n', %s))",
        shop.random.randbytes(16),
        order,
        total,
        shop.number,
    )
    shop.run("INSERT INTO shop.events VALUES (%s, 'order', NOW(), NULL)", customer)
    shop.placed = [*shop.placed[-200:], order]
    return True


def _ship_order(shop: _Worker) -> bool:
    shop.run(
        "UPDATE shop.orders SET status = 'shipped', note = 'left the house' WHERE id = %s",
        shop.any("orders"),
    )
    shop.run(
        "UPDATE shop.customers SET balance = balance - 1, vip = NOT vip WHERE id = %s",
        shop.any("customers"),
    )
    return True


def _cancel_order(shop: _Worker) -> bool:
    if not shop.placed:
        return _place_order(shop)
    order = shop.placed.pop(shop.random.randrange(len(shop.placed)))
    shop.run("DELETE FROM shop.order_items WHERE order_id = %s", order)
    shop.run("DELETE FROM shop.orders WHERE id = %s", order)
    return True


def _move_account(shop: _Worker) -> bool:
    """Change a key, under an image that has only what changed."""
    code = shop.account()
    with _image(shop, "MINIMAL"):
        shop.run("UPDATE shop.accounts SET code = %s WHERE code = %s", f"{code}-moved", code)
    shop.run("UPDATE shop.accounts SET balance = balance * 1.01 WHERE code = %s", f"{code}-moved")
    return True


def _move_account_back(shop: _Worker) -> bool:
    code = shop.account()
    # The collation takes both spellings for one: in some cases only the letters' size changes.
    other = code.lower() if shop.random.random() < 0.3 else code
    shop.run("UPDATE shop.accounts SET code = %s WHERE code = %s", other, f"{code}-moved")
    return True


def _swap_accounts(shop: _Worker) -> bool:
    first, second = sorted((shop.account(), shop.account()))
    if first == second:
        return False
    between = f"{first}-between-{shop.number}"
    for to, from_ in ((between, first), (first, second), (second, between)):
        shop.run("UPDATE shop.accounts SET code = %s WHERE code = %s", to, from_)
    return True


def _replace_account(shop: _Worker) -> bool:
    shop.run(
        "REPLACE INTO shop.accounts VALUES (%s, %s, 0, REPEAT('new ', 900))",
        shop.account(),
        shop.any("customers"),
    )
    return True


def _rewrite_product(shop: _Worker) -> bool:
    """Change the long text itself, or only what stands beside it, under an image without it."""
    if shop.random.random() < 0.2:
        shop.run(
            "UPDATE shop.products SET description = REPEAT(%s, 600) WHERE sku = %s",
            f"{shop.random.random():.5f} ",
            shop.sku(),
        )
        return True
    with _image(shop, "NOBLOB"):
        shop.run(
            "UPDATE shop.products SET price = price + 0.1, attributes = NULL WHERE sku = %s",
            shop.sku(),
        )
    return True


def _swap_seats(shop: _Worker) -> bool:
    """Move a block of guests one seat on."""
    first = shop.random.randint(1, max(1, shop.start["seats"] - 5))
    block = (first, first + 3)
    shop.run("UPDATE shop.seats SET place = -place WHERE place BETWEEN %s AND %s", *block)
    shop.run(
        "UPDATE shop.seats SET place = IF(place = %s, %s, -place - 1) WHERE place BETWEEN %s AND %s",
        -first,
        first + 3,
        -first - 3,
        -first,
    )
    return True


def _repeat_event(shop: _Worker) -> bool:
    customer = shop.random.randint(0, 499)
    for _ in range(2):
        shop.run(
            "INSERT INTO shop.events VALUES (%s, 'click', '2025-06-01 12:00:00', X'00FF')", customer
        )
    shop.run(
        "DELETE FROM shop.events WHERE customer_id = %s AND kind = %s",
        shop.random.randint(0, 499),
        shop.random.choice(("order", "click", "seen")),
    )
    shop.run(
        "UPDATE shop.events SET kind = 'seen' WHERE customer_id = %s AND kind = 'order'", customer
    )
    return True


def _offer(shop: _Worker) -> bool:
    shop.run(
        "INSERT INTO shop.flash_sales VALUES (%s, %s, %s, '23:59:59.5') "
        "ON DUPLICATE KEY UPDATE percent = VALUES(percent), until = VALUES(until)",
        shop.random.randint(1, 500),
        shop.sku(),
        shop.random.randint(1, 90),
    )
    return True


def _change_half(shop: _Worker) -> bool:
    shop.run("UPDATE shop.customers SET country = 'IT' WHERE id = %s", shop.any("customers"))
    shop.run("SAVEPOINT half")
    shop.run("UPDATE shop.customers SET name = 'lost' WHERE id = %s", shop.any("customers"))
    shop.run("ROLLBACK TO half")
    return True


def _change_nothing(shop: _Worker) -> bool:
    shop.run("DELETE FROM shop.customers WHERE id = %s", shop.any("customers"))
    return False


_ACTIONS: tuple[tuple[Callable[[_Worker], bool], int], ...] = (
    (_place_order, 40),
    (_ship_order, 20),
    (_cancel_order, 8),
    (_rewrite_product, 7),
    (_offer, 5),
    (_repeat_event, 4),
    (_move_account, 4),
    (_move_account_back, 4),
    (_swap_seats, 4),
    (_replace_account, 2),
    (_swap_accounts, 2),
    (_change_half, 2),
    (_change_nothing, 1),
)
"""The transactions, true for those that are to be committed, and how often each happens."""
_FUNCTIONS = [action for action, _ in _ACTIONS]
_WEIGHTS = [weight for _, weight in _ACTIONS]


def _add_column(url: str) -> str:
    statement = "ALTER TABLE shop.orders ADD COLUMN channel text"
    _run(url, "SET SESSION lock_wait_timeout = 10", statement)
    return statement.lower()


def _change_much(url: str, rows: int) -> str:
    half = rows // 2
    changed = _run(
        url,
        f"INSERT INTO shop.order_items SELECT 5000000000 + seq, 1, 'SKU-1', 1, 9.99 FROM {_counted(half)}",
        "UPDATE shop.order_items SET quantity = quantity + 1 WHERE order_id < 1000000000 "
        f"ORDER BY order_id, line LIMIT {half}",
    )
    return f"one transaction with {half + changed:,} changed rows"


def _empty_table(url: str) -> str:
    _run(url, "TRUNCATE shop.flash_sales")
    return "truncate shop.flash_sales"


MYSQL = ShopKind(
    TABLES,
    _fill,
    _Worker,
    pymysql.err.MySQLError,
    pymysql.err.MySQLError,
    _add_column,
    _change_much,
    _empty_table,
)
