"""Counts changes in a database: each exactly once, whatever crashes, because count and place are one transaction.

headrace consume exactly_once:Counted http://127.0.0.1:7070
"""

from __future__ import annotations

from collections import Counter

import sqlalchemy as sa

from headrace.client import Consumer, Event, Result, SqlCheckpoints, Window
from headrace.wire.place import Place

COUNTS = sa.Table(
    "counts",
    sa.MetaData(),
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column("changes", sa.BigInteger, nullable=False),
)


class Counted(Consumer):
    def __init__(self, database: str = "sqlite:///counts.db") -> None:
        self.engine = sa.create_engine(database)
        self.checkpoints = SqlCheckpoints(self.engine, "counted")
        self.open: Counter[str] = Counter()
        COUNTS.create(self.engine, checkfirst=True)

    def on_data_event(self, event: Event) -> None:
        self.open[str(event.table)] += 1

    def on_end_window(self, window: Window) -> Result:
        with self.engine.begin() as connection:
            for name, more in self.open.items():
                counted = COUNTS.update().where(COUNTS.c.name == name)
                if not connection.execute(counted.values(changes=COUNTS.c.changes + more)).rowcount:
                    connection.execute(COUNTS.insert().values(name=name, changes=more))
            self.checkpoints.store(window.place, connection=connection)
        self.open.clear()
        return Result.SKIP_CHECKPOINT

    def on_rollback(self, place: Place) -> None:
        self.open.clear()
