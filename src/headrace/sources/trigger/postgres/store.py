"""The change tables of PostgreSQL, as the reader of the log uses them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from headrace.model.schema import TableSchema
from headrace.sources.postgres.connection import Session, quote
from headrace.sources.postgres.keyset import array_literal
from headrace.sources.postgres.side import SideSession
from headrace.sources.trigger.cost import Cost
from headrace.sources.trigger.postgres import readers
from headrace.sources.trigger.postgres.clock import Striker, tick_behind
from headrace.sources.trigger.postgres.fetch import Fetch
from headrace.sources.trigger.postgres.purge import purge
from headrace.sources.trigger.postgres.refused import refusals
from headrace.sources.trigger.postgres.settings import PostgresTriggerSettings

__all__ = ["PostgresChanges"]


class PostgresChanges:
    """See `headrace.sources.trigger.ports.Changes`.

    Args:
        session: for the clock and its transactions; becomes ours.
        side: for places and what is purged; becomes ours.
        settings: of the source.
    """

    def __init__(
        self, session: Session, side: SideSession, settings: PostgresTriggerSettings
    ) -> None:
        self._session = session
        self._side = side
        self._settings = settings
        self._striker = Striker()

    @property
    def usable(self) -> bool:
        """Whether the server can still be asked."""
        return self._session.usable

    def refusals(self) -> AbstractContextManager[None]:
        """Name what the server refuses."""
        return refusals()

    def walk(self, scn: int, cost: Cost) -> Fetch | None:
        """Open the tick behind an SCN."""
        found = tick_behind(self._session, scn)
        if found is None:
            if self._striker.strike(self._session).last_scn == scn:
                return None
            found = tick_behind(self._session, scn)
            if found is None:
                return None
        tick, before = found
        return Fetch(self._session, before, tick, scn, cost, self._settings.slow_query_s)

    def note(self, scn: int, cost: Cost) -> None:
        """Note how far the pipeline has come."""
        readers.note(self._side.get(), self._settings.name, scn, cost)

    def purge(self) -> bool:
        """Remove a piece of what everybody has read."""
        return purge(self._side.get(), self._settings.name)

    def remove(self, schema: TableSchema, keys: Sequence[tuple[str, ...]]) -> None:
        """Remove the rows of some keys that are there."""
        columns = [schema.column(name) for name in schema.key]
        names = [f"k{place}" for place in range(len(columns))]
        arrays = ", ".join(f"{array_literal(cells)}::text[]" for cells in zip(*keys, strict=True))
        equal = " AND ".join(
            f"t.{quote(column.name)} = w.{name}::{column.source_type}"
            for column, name in zip(columns, names, strict=True)
        )
        table = f"{quote(schema.table.schema)}.{quote(schema.table.name)}"
        self._side.get().run(
            f"DELETE FROM ONLY {table} AS t USING unnest({arrays}) AS w ({', '.join(names)}) WHERE {equal}"
        )

    def close(self) -> None:
        """Release the connections."""
        self._session.close()
        self._side.close()
