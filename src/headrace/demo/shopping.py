"""What happens in the shop: each function is one transaction.

They are chosen to be hard to copy: several tables at once, keys that change and swap, rows that are
deleted and come back, long texts that an update does not send, duplicate rows without a key,
transactions that roll back or roll back in part.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

import psycopg

from headrace.demo.schema import sizes

__all__ = ["ACTIONS", "Shop", "act"]

Connection = psycopg.Connection[tuple[object, ...]]


@dataclass(slots=True)
class Shop:
    """One customer-facing worker's view of the shop.

    Attributes:
        connection: its own connection.
        random: its own generator.
        rows: how many rows the shop was loaded with.
        worker: number of the worker, and
        workers: how many there are: new order numbers of two workers never meet.
        with_channel: whether orders have their new column by now.
    """

    connection: Connection
    random: random.Random
    rows: int
    worker: int
    workers: int
    with_channel: bool = False
    start: dict[str, int] = field(init=False)
    next_order: int = field(init=False)
    placed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start = sizes(self.rows)
        self.next_order = 1_000_000_000 + self.worker

    def run(self, statement: str, *values: object) -> None:
        """Send a prepared statement; its answer is awaited at the end of the transaction."""
        self.connection.execute(statement, values, prepare=True)

    def any(self, table: str) -> int:
        """Return a number from 1 to the table's first size."""
        return self.random.randint(1, self.start[table])

    def sku(self) -> str:
        """Return a product's key."""
        return f"SKU-{self.any('products')}"

    def account(self) -> str:
        """Return the key of an account that may have moved away."""
        return f"ACC-{self.any('accounts')}"


def place_order(shop: Shop) -> None:
    """Insert an order, its items, payment and event; take the goods from stock."""
    order, shop.next_order = shop.next_order, shop.next_order + shop.workers
    customer, total = shop.any("customers"), shop.random.randint(100, 99999) / 100
    if shop.with_channel:
        shop.run(
            "insert into shop.orders (id, customer_id, status, placed_at, total, channel)"
            " values (%s, %s, 'placed', now(), %s, %s)",
            order,
            customer,
            total,
            shop.random.choice(("web", "phone")),
        )
    else:
        shop.run(
            "insert into shop.orders (id, customer_id, status, placed_at, total)"
            " values (%s, %s, 'placed', now(), %s)",
            order,
            customer,
            total,
        )
    # In key order: two orders of the same goods then wait for each other instead of deadlocking.
    for line, sku in enumerate(sorted({shop.sku(), shop.sku()}), start=1):
        shop.run(
            "insert into shop.order_items values (%s, %s, %s, %s, %s)", order, line, sku, 1, total
        )
        shop.run("update shop.products set stock = stock - 1 where sku = %s", sku)
    shop.run(
        "insert into shop.payments values (%s, %s, 'card', %s, now(), jsonb_build_object('n', %s::int))",
        UUID(int=shop.random.getrandbits(128)),
        order,
        total,
        shop.worker,
    )
    shop.run("insert into shop.events values (%s, 'order', localtimestamp, null)", customer)
    shop.placed = [*shop.placed[-200:], order]


def ship_order(shop: Shop) -> None:
    """Move an order on and charge its customer."""
    shop.run(
        "update shop.orders set status = 'shipped', note = 'left the house' where id = %s",
        shop.any("orders"),
    )
    shop.run(
        "update shop.customers set balance = balance - 1, vip = not vip where id = %s",
        shop.any("customers"),
    )


def cancel_order(shop: Shop) -> None:
    """Delete an order of ours with everything that hangs on it."""
    if not shop.placed:
        return place_order(shop)
    order = shop.placed.pop(shop.random.randrange(len(shop.placed)))
    shop.run("delete from shop.order_items where order_id = %s", order)
    shop.run("delete from shop.orders where id = %s", order)
    return None


def move_account(shop: Shop) -> None:
    """Change a key; the long statement does not travel with it."""
    code = shop.account()
    other = f"{code}-moved"
    shop.run(
        "update shop.accounts set code = %s, balance = balance + 1 where code = %s"
        " and not exists (select from shop.accounts where code = %s)",
        other,
        code,
        other,
    )
    shop.run("update shop.accounts set balance = balance * 1.01 where code = %s", other)


def move_account_back(shop: Shop) -> None:
    """Give a moved account its old key again."""
    code = shop.account()
    shop.run(
        "update shop.accounts set code = %s where code = %s"
        " and not exists (select from shop.accounts where code = %s)",
        code,
        f"{code}-moved",
        code,
    )


def swap_accounts(shop: Shop) -> None:
    """Let two rows change places by way of a third key."""
    first, second = sorted((shop.account(), shop.account()))
    if first == second:
        return
    between = f"{first}-between-{shop.worker}"
    change = "update shop.accounts set code = %s where code = %s"
    free = " and not exists (select from shop.accounts where code = %s)"
    shop.run(change, between, first)
    shop.run(change + free, first, second, first)
    shop.run(change + free, second, between, second)


def replace_account(shop: Shop) -> None:
    """Delete a row and insert another one under its key."""
    code = shop.account()
    shop.run("delete from shop.accounts where code = %s", code)
    shop.run(
        "insert into shop.accounts values (%s, %s, 0, repeat('new ', 900))"
        " on conflict (code) do nothing",
        code,
        shop.any("customers"),
    )


def rewrite_product(shop: Shop) -> None:
    """Change the long text itself, or only what stands beside it."""
    if shop.random.random() < 0.2:
        shop.run(
            "update shop.products set description = repeat(%s, 600) where sku = %s",
            f"{shop.random.random():.5f} ",
            shop.sku(),
        )
    else:
        shop.run(
            "update shop.products set price = price + 0.1, attributes = null where sku = %s",
            shop.sku(),
        )


def swap_seats(shop: Shop) -> None:
    """Move a block of guests one seat on; keys are checked at the end."""
    first = shop.random.randint(1, max(1, shop.start["seats"] - 5))
    shop.run(
        "update shop.seats set place = case when place = %s then %s else place - 1 end"
        " where place between %s and %s",
        first,
        first + 3,
        first,
        first + 3,
    )


def repeat_event(shop: Shop) -> None:
    """Insert the same row twice, and take one customer's rows of another kind away."""
    customer = shop.random.randint(0, 499)
    for _ in range(2):
        shop.run(
            "insert into shop.events values (%s, 'click', '2025-06-01 12:00:00', '\\x00ff')",
            customer,
        )
    shop.run(
        "delete from shop.events where customer_id = %s and kind = %s",
        shop.random.randint(0, 499),
        shop.random.choice(("order", "click", "seen")),
    )
    shop.run(
        "update shop.events set kind = 'seen' where customer_id = %s and kind = 'order'", customer
    )


def offer(shop: Shop) -> None:
    """Insert or change one of a few rows of a small table."""
    shop.run(
        "insert into shop.flash_sales values (%s, %s, %s, '23:59:59.5')"
        " on conflict (id) do update set percent = excluded.percent, until = excluded.until",
        shop.random.randint(1, 500),
        shop.sku(),
        shop.random.randint(1, 90),
    )


def change_half(shop: Shop) -> None:
    """Keep the first half of a transaction and roll the second back."""
    shop.run("update shop.customers set country = 'IT' where id = %s", shop.any("customers"))
    shop.run("savepoint half")
    shop.run("update shop.customers set name = 'lost' where id = %s", shop.any("customers"))
    shop.run("rollback to half")


def change_nothing(shop: Shop) -> None:
    """Roll a whole transaction back."""
    shop.run("delete from shop.customers where id = %s", shop.any("customers"))
    raise psycopg.Rollback()


ACTIONS: tuple[tuple[Callable[[Shop], None], int], ...] = (
    (place_order, 40),
    (ship_order, 20),
    (cancel_order, 8),
    (rewrite_product, 7),
    (offer, 5),
    (repeat_event, 4),
    (move_account, 4),
    (move_account_back, 4),
    (swap_seats, 4),
    (replace_account, 2),
    (swap_accounts, 2),
    (change_half, 2),
    (change_nothing, 1),
)
"""The transactions and how often each happens."""

_FUNCTIONS = [action for action, _ in ACTIONS]
_WEIGHTS = [weight for _, weight in ACTIONS]


def act(shop: Shop) -> bool:
    """Run one transaction of the mix; false when it lost against another one."""
    action = shop.random.choices(_FUNCTIONS, _WEIGHTS)[0]
    try:
        with shop.connection.pipeline(), shop.connection.transaction():
            action(shop)
    except (
        psycopg.errors.DeadlockDetected,
        psycopg.errors.UniqueViolation,
        psycopg.errors.InvalidSqlStatementName,
    ):
        # Statements that the pipeline prepared after the error do not exist at the server; the
        # connection's memory of them can only be thrown away with it.
        shop.connection.close()
        return False
    return True
