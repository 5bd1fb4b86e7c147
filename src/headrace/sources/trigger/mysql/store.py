"""The change tables of MySQL or MariaDB, as the reader of the log uses them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from headrace.model.schema import TableSchema
from headrace.sources.mysql.catalog import read_collations, read_table
from headrace.sources.mysql.connection import Session, connect
from headrace.sources.mysql.keyset import keyset_of
from headrace.sources.trigger.cost import Cost
from headrace.sources.trigger.mysql import readers
from headrace.sources.trigger.mysql.clock import Striker, tick_behind
from headrace.sources.trigger.mysql.purge import purge
from headrace.sources.trigger.mysql.refused import refusals
from headrace.sources.trigger.mysql.settings import MysqlTriggerSettings
from headrace.sources.trigger.mysql.walk import TickWalk

__all__ = ["MysqlChanges"]


class MysqlChanges:
    """See `headrace.sources.trigger.ports.Changes`.

    Args:
        session: for the clock and its windows; becomes ours.
        settings: of the source.
    """

    def __init__(self, session: Session, settings: MysqlTriggerSettings) -> None:
        self._session = session
        self._settings = settings
        self._striker = Striker(settings)
        self._side: Session | None = None

    @property
    def usable(self) -> bool:
        """Whether the server can still be asked."""
        return self._session.open

    def refusals(self) -> AbstractContextManager[None]:
        """Name what the server refuses."""
        return refusals()

    def walk(self, scn: int, cost: Cost) -> TickWalk | None:
        """Open the tick behind an SCN."""
        tick = tick_behind(self._session, scn)
        if tick is None:
            if self._striker.strike(self._session).last_scn == scn:
                return None
            tick = tick_behind(self._session, scn)
            if tick is None:
                return None
        return TickWalk(self._session, tick, scn, cost, self._settings.slow_query_s)

    def kept(self, layout: int) -> bytes | None:
        """Return the text of a layout, None where it is not kept."""
        rows = self._asked().rows(f"SELECT layout FROM headrace.txlog_layouts WHERE id = {layout}")
        return rows[0][0] if rows else None

    def note(self, scn: int, cost: Cost) -> None:
        """Note how far the pipeline has come."""
        readers.note(self._asked(), self._settings.name, scn, cost)

    def purge(self) -> bool:
        """Remove a piece of what everybody has read."""
        return purge(self._asked(), self._settings.name)

    def remove(self, schema: TableSchema, keys: Sequence[tuple[str, ...]]) -> None:
        """Remove the rows of some keys that are there, each by itself: a scan would wait for those who write."""
        session = self._asked()
        facts = read_table(session, schema.table, read_collations(session))
        if facts is None or set(facts.key) != set(schema.key):
            return  # It is another table by now.
        keyset = keyset_of(facts)
        places = [schema.key.index(name) for name in facts.key]
        session.run("BEGIN", *(keyset.delete([key[at] for at in places]) for key in keys), "COMMIT")

    def close(self) -> None:
        """Release the connections."""
        self._session.close()
        self._striker.close()
        if self._side is not None:
            self._side.close()

    def _asked(self) -> Session:
        if self._side is None or not self._side.open:
            self._side = connect(self._settings.database)
        return self._side
