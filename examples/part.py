"""A part of the stream, each row as the class that the consumer was written with."""

from __future__ import annotations

from decimal import Decimal

from pydantic import BaseModel

from headrace.client import Consumer, Event, Subscription


class Order(BaseModel):
    id: int
    total: Decimal
    status: str = "new"


class Paid(Consumer):
    def __init__(self) -> None:
        self.orders: dict[int, Order] = {}

    def on_data_event(self, event: Event) -> None:
        if event.before is not None:
            # The key may be another one now.
            self.orders.pop(event.before["id"], None)
        if event.op == "-D":
            self.orders.pop(event.value.id, None)
        else:
            self.orders[event.value.id] = event.value


def paid_orders(relay: str, consumer: Paid, upto: int | None = None) -> Subscription:
    return Subscription(
        relay,
        "shop",
        consumer,
        filter={
            "tables": ["public.orders"],
            "columns": {"public.orders": ["id", "total", "status"]},
            "where": {"public.orders": "status = 'paid' and total >= 10"},
        },
        shapes={"public.orders": Order},
        upto=upto,
    )
