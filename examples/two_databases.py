"""Orders of one database and customers of another, joined into one table that a search reads.

Each side has a subscription and a place of its own. The two databases have no common order: a customer may come before
the order or behind it, and the table is right in the end either way, because both sides keep what they were told and
write the joined rows anew that their changes touch.

    python two_databases.py http://127.0.0.1:7070 postgresql+psycopg://user@host/search
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import sqlalchemy as sa

from headrace.client import Consumer, Event, Result, SqlCheckpoints, Subscription, Window
from headrace.model.block import SystemEvent, SystemKind
from headrace.wire.place import Place

METADATA = sa.MetaData()
ORDERS = sa.Table(
    "orders",
    METADATA,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("customer_id", sa.BigInteger),
    sa.Column("total", sa.Numeric(12, 2)),
)
CUSTOMERS = sa.Table(
    "customers",
    METADATA,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text),
)
SEARCH = sa.Table(
    "search",
    METADATA,
    sa.Column("order_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("customer_id", sa.BigInteger, index=True),
    sa.Column("customer", sa.Text),
    sa.Column("total", sa.Numeric(12, 2)),
)
JOINED = sa.select(ORDERS.c.id, ORDERS.c.customer_id, CUSTOMERS.c.name, ORDERS.c.total).select_from(
    ORDERS.outerjoin(CUSTOMERS, CUSTOMERS.c.id == ORDERS.c.customer_id)
)

ONE_AT_A_TIME = threading.Lock()
"""Two sides that write at once would not see each other's new rows."""


class Side(Consumer):
    """One of the two tables.

    Args:
        engine: of the database with the joined table.
        table: which one is kept.
        found_by: the column of the joined table that has this table's key, and the same column of ``orders``.
    """

    def __init__(
        self, engine: sa.Engine, table: sa.Table, found_by: tuple[sa.Column[Any], sa.Column[Any]]
    ) -> None:
        self.engine = engine
        self.table = table
        self.found_by = found_by
        self.checkpoints = SqlCheckpoints(engine, f"search-{table.name}")
        self.waiting: list[Event | SystemEvent] = []

    def on_data_event(self, event: Event) -> None:
        self.waiting.append(event)

    def on_system_event(self, event: SystemEvent) -> None:
        if event.kind is SystemKind.TRUNCATE:
            self.waiting.append(event)

    def on_end_window(self, window: Window) -> Result:
        with ONE_AT_A_TIME, self.engine.begin() as connection:
            touched: set[int] = set()
            for event in self.waiting:
                if isinstance(event, Event):
                    touched |= self.keep(connection, event)
                else:
                    touched |= set(connection.scalars(sa.select(self.table.c.id)))
                    connection.execute(self.table.delete())
            self.join(connection, touched)
            self.checkpoints.store(window.place, connection=connection)
        self.waiting.clear()
        return Result.SKIP_CHECKPOINT

    def on_rollback(self, place: Place) -> None:
        self.waiting.clear()

    def keep(self, connection: sa.Connection, event: Event) -> set[int]:
        """Do a change to our own table; return the keys of the rows that are others now."""
        (key,) = event.key
        old = key if event.before is None else event.before["id"]
        mine = self.table.c.id == old
        if event.op == "-D":
            connection.execute(self.table.delete().where(mine))
        else:
            cells = {name: cell for name, cell in event.row.items() if name in self.table.c}
            if not connection.execute(self.table.update().where(mine).values(cells)).rowcount:
                connection.execute(self.table.insert().values(cells))
        return {key, old}

    def join(self, connection: sa.Connection, keys: set[int]) -> None:
        """Write the joined rows anew that have these keys."""
        in_search, in_orders = self.found_by
        connection.execute(SEARCH.delete().where(in_search.in_(keys)))
        connection.execute(
            SEARCH.insert().from_select(list(SEARCH.c), JOINED.where(in_orders.in_(keys)))
        )


def sides(engine: sa.Engine) -> dict[str, Side]:
    """Return the consumer of each source."""
    METADATA.create_all(engine)
    return {
        "shop": Side(engine, ORDERS, (SEARCH.c.order_id, ORDERS.c.id)),
        "crm": Side(engine, CUSTOMERS, (SEARCH.c.customer_id, ORDERS.c.customer_id)),
    }


def subscriptions(relay: str, engine: sa.Engine, **upto: int) -> list[Subscription]:
    """Return one subscription for each source; each runs in a thread of its own."""
    return [
        Subscription(
            relay,
            source,
            side,
            side.checkpoints,
            filter={"tables": [f"public.{side.table.name}"]},
            upto=upto.get(source),
        )
        for source, side in sides(engine).items()
    ]


if __name__ == "__main__":
    threads = [
        threading.Thread(target=subscription.run)
        for subscription in subscriptions(sys.argv[1], sa.create_engine(sys.argv[2]))
    ]
    for thread in threads:
        thread.start()
