"""A consumer in a process of its own that keeps what it gets in SQLite; `test_checkpoints` kills it at any moment."""

from __future__ import annotations

import sys

import sqlalchemy as sa

from headrace.client import Consumer, FileCheckpoints, Result, SqlCheckpoints, Subscription, Window
from headrace.client.consumer import Event

_TABLE = sa.Table(
    "rows",
    sa.MetaData(),
    sa.Column("scn", sa.BigInteger),
    sa.Column("ord", sa.Integer),
)


class Transactional(Consumer):
    """Stores rows and place in one transaction: each change exactly once, whatever happens."""

    def __init__(self, engine: sa.Engine, checkpoints: SqlCheckpoints) -> None:
        self._engine = engine
        self._checkpoints = checkpoints
        self._rows: list[dict[str, int]] = []

    def on_start_window(self, window: Window) -> None:
        self._rows = []

    def on_data_event(self, event: Event) -> None:
        self._rows.append({"scn": event.scn, "ord": event.ord})

    def on_end_window(self, window: Window) -> Result:
        with self._engine.begin() as connection:
            if self._rows:
                connection.execute(_TABLE.insert(), self._rows)
            self._checkpoints.store(window.place, connection=connection)
        print(window.scn, flush=True)
        return Result.SKIP_CHECKPOINT


class AtLeastOnce(Consumer):
    """Stores each window's rows by themselves; the place follows in a file."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._rows: list[dict[str, int]] = []

    def on_start_window(self, window: Window) -> None:
        self._rows = []

    def on_data_event(self, event: Event) -> None:
        self._rows.append({"scn": event.scn, "ord": event.ord})

    def on_end_window(self, window: Window) -> None:
        with self._engine.begin() as connection:
            if self._rows:
                connection.execute(_TABLE.insert(), self._rows)
        print(window.scn, flush=True)


def main(kind: str, relay: str, folder: str, upto: int) -> None:
    """Consume everything up to an SCN."""
    engine = sa.create_engine(f"sqlite:///{folder}/rows.db")
    _TABLE.create(engine, checkfirst=True)
    if kind == "transactional":
        own = SqlCheckpoints(engine, "test")
        Subscription(relay, "shop", Transactional(engine, own), own, upto=upto).run()
    else:
        kept = FileCheckpoints(f"{folder}/place.json")
        Subscription(relay, "shop", AtLeastOnce(engine), kept, upto=upto).run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
