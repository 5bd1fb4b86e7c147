"""A group that notes every change of an order exactly once, whichever member it comes to."""

from __future__ import annotations

import sqlalchemy as sa

from headrace.client import Consumer, Event, Group, Partition, Result, SqlGroupStore, Window
from headrace.wire.place import Place

CHANGES = sa.Table(
    "changes",
    sa.MetaData(),
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("scn", sa.BigInteger, nullable=False),
    sa.Column("ord", sa.Integer, nullable=False),
    sa.Column("op", sa.String(2), nullable=False),
    sa.Column("order_id", sa.BigInteger, nullable=False),
)


class Kept(Consumer):
    def __init__(self, partition: Partition, engine: sa.Engine) -> None:
        self.partition, self.engine = partition, engine
        self.rows: list[dict[str, object]] = []

    def on_data_event(self, event: Event) -> None:
        place = {"scn": event.scn, "ord": event.ord}
        self.rows.append({**place, "op": event.op, "order_id": event.key[0]})

    def on_end_window(self, window: Window) -> Result:
        with self.engine.begin() as connection:
            self.partition.checkpoints.store(window.place, connection=connection)
            if self.rows:
                connection.execute(CHANGES.insert(), self.rows)
        self.rows = []
        return Result.SKIP_CHECKPOINT

    def on_rollback(self, place: Place) -> None:
        self.rows = []


def kept(relay: str, engine: sa.Engine, partitions: int = 8) -> Group:
    CHANGES.create(engine, checkfirst=True)
    store = SqlGroupStore(engine)
    return Group(
        relay, "shop", lambda partition: Kept(partition, engine), store, "kept", partitions
    )
