"""Changes in a table, each in one transaction with the place behind it: exactly once, whatever happens."""

from __future__ import annotations

from typing import Any, Protocol

import sqlalchemy as sa

from headrace.client import Consumer, Event, Result, Window
from headrace.wire.place import Place
from tests.faults.chaos.told import Row, fold, line_of

__all__ = ["Keeping", "Kept", "kept_table"]


class Placed(Protocol):
    """Checkpoints that store in a transaction of ours."""

    def store(self, place: Place, *, connection: sa.Connection | None = None) -> None:
        """Remember a place."""


def kept_table(engine: sa.Engine, name: str) -> sa.Table:
    """Return the table of this name, made if it is not there."""
    table = sa.Table(
        name,
        sa.MetaData(),
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("scn", sa.BigInteger),
        sa.Column("ord", sa.Integer),
        sa.Column("event", sa.JSON),
        sa.Column("number", sa.Integer),
        sa.Column("generation", sa.BigInteger),
    )
    # Several processes make it at once: to look first and make it then would race.
    with engine.begin() as connection:
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(6)")
        table.create(connection, checkfirst=True)
    return table


class Keeping(Consumer):
    """Stores changes and place in one transaction.

    Args:
        engine: of the database.
        table: of the changes.
        checkpoints: in the same database.
        number: of the partition.
        generation: under which it is owned.
    """

    def __init__(
        self,
        engine: sa.Engine,
        table: sa.Table,
        checkpoints: Placed,
        number: int = 0,
        generation: int = 0,
    ) -> None:
        self._engine = engine
        self._table = table
        self._checkpoints = checkpoints
        self._owned = {"number": number, "generation": generation}
        self._rows: list[Row] = []

    def on_start_window(self, window: Window) -> None:
        self._rows = []

    def on_data_event(self, event: Event) -> None:
        said = line_of(event)
        self._rows.append({"scn": event.scn, "ord": event.ord, "event": said, **self._owned})

    def on_end_window(self, window: Window) -> Result:
        with self._engine.begin() as connection:
            # The place first: it locks the partition's row, so the order of ids is that of the owners.
            self._checkpoints.store(window.place, connection=connection)
            if self._rows:
                connection.execute(self._table.insert(), self._rows)
        return Result.SKIP_CHECKPOINT


class Kept:
    """Everything in such a table.

    Attributes:
        places: of all changes, in the order of the stream.
        rows: that the changes amount to, in that order.
        owners: generations of each partition, in the order in which they stored.
    """

    def __init__(self, engine: sa.Engine, name: str) -> None:
        table = kept_table(engine, name)
        self.places: list[tuple[int, int]] = []
        self.rows: dict[int, int] = {}
        self.owners: dict[int, list[int]] = {}
        self._last: dict[int, tuple[int, int]] = {}
        self.wrong: list[str] = []
        with engine.connect() as connection:
            for row in connection.execute(sa.select(table).order_by(table.c.id)):
                self._owned(row)
            for row in connection.execute(sa.select(table).order_by(table.c.scn, table.c.ord)):
                self.places.append((row.scn, row.ord))
                fold([row.event], self.rows)

    def _owned(self, row: Any) -> None:
        """Look at the rows in the order of their commits."""
        owners = self.owners.setdefault(row.number, [])
        if not owners or owners[-1] != row.generation:
            owners.append(row.generation)
        place = (row.scn, row.ord)
        if place <= self._last.get(row.number, (-1, -1)):
            self.wrong.append(f"{place} of partition {row.number} was stored behind a later one")
        self._last[row.number] = place
