"""Looks at the catalog: tables that came, went, or are not what their triggers were made for.

Whoever wants to write waits behind us while we wait for a table: so that is done briefly, and ever more seldom.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from headrace.errors import SourceUnavailable
from headrace.model.schema import TableId
from headrace.sources.base import CatalogEntry, CatalogLook, Severity, refuse
from headrace.sources.mysql.charsets import Collations
from headrace.sources.mysql.connection import QueryFailed, Session
from headrace.sources.mysql.preflight import captured_tables
from headrace.sources.trigger.cost import lost_triggers
from headrace.sources.trigger.mysql import installed, readers
from headrace.sources.trigger.mysql.catalog import read_layouts
from headrace.sources.trigger.mysql.layout import Layout
from headrace.sources.trigger.mysql.preflight import TriggerPreflight
from headrace.sources.trigger.mysql.settings import MysqlTriggerSettings

__all__ = ["TableWatch", "lost"]

_LOCK_S = 1.0
_PAUSE_S = 1.0
_LONGEST_S = 60.0


def lost(
    session: Session, registered: Mapping[TableId, Layout], now: Mapping[TableId, Layout]
) -> set[TableId]:
    """Return those of some tables whose triggers somebody took away; with a table itself they go too."""
    same = {
        table: layout
        for table, layout in registered.items()
        if table in now and now[table].storage == layout.storage
    }
    return same.keys() - installed.with_triggers(session, same)


class TableWatch:
    """Makes the looks of one source; used from one thread.

    Args:
        settings: of the source.
    """

    def __init__(self, settings: MysqlTriggerSettings) -> None:
        self._settings = replace(settings, lock_s=_LOCK_S)
        self._waits: dict[TableId, tuple[float, float]] = {}

    def look(
        self,
        session: Session,
        collations: Collations,
        known: Mapping[str, CatalogEntry],
        settled: Collection[TableId],
        admitted: Collection[str],
    ) -> CatalogLook:
        """See `headrace.sources.base.CatalogReader`. A table's identity is its name.

        Raises:
            SlotLost: somebody took the triggers of a captured table away.
            PreflightFailed: a captured table is one by now that triggers do not see all of.
        """
        selected = captured_tables(session, self._settings.database)
        registered = installed.registered(session)
        now = read_layouts(session, selected, registered, installed.stale(session))
        old = {table for table in now if str(table) in known}
        adopted = {table for table in now if table in settled} - old
        captured = {t: registered[t] for t in old | adopted if t in registered}
        if gone := lost(session, captured, now):
            raise lost_triggers(gone)
        shapes = {
            table: str(registered[table].layout_id) if table in registered else ""
            for table in old | adopted
        }
        for table in sorted(old):
            # What was adopted only now is looked at again, so that its copy is seen to be made anew.
            if shapes[table] != str(now[table].layout_id) and self._renew(
                session, collations, registered.get(table), now[table]
            ):
                shapes[table] = str(now[table].layout_id)
        strangers = now.keys() - old - adopted
        joined: set[TableId] = set()
        refused: dict[TableId, str] = {}
        for table in sorted(t for t in strangers if str(t) in admitted):
            if why := self._join(session, collations, registered.get(table), now[table]):
                refused[table] = why
            elif table not in self._waits:
                joined.add(table)
                shapes[table] = str(now[table].layout_id)
        restated = {table for table in old if known[str(table)].shape != shapes[table]}
        return CatalogLook(
            tables={str(table): CatalogEntry(table, shape) for table, shape in shapes.items()},
            schemas={table.schema: table.schema for table in now},
            joining={str(table): table for table in strangers},
            joined=frozenset(map(str, joined)),
            restated=frozenset(map(str, restated)),
            refused=refused,
        )

    def _renew(
        self, session: Session, collations: Collations, before: Layout | None, now: Layout
    ) -> bool:
        """Make the triggers of a captured table for what it is now; return whether that is done.

        Raises:
            PreflightFailed: by now it is one that triggers do not see all of.
        """
        at, _ = self._waits.get(now.table, (0.0, _PAUSE_S))
        if time.monotonic() < at:
            return False
        preflight = TriggerPreflight(session, self._settings)
        refuse(self._settings.name, list(preflight.of_table(now.rows.facts(collations))))
        return self._made(session, collations, before, now)

    def _join(
        self, session: Session, collations: Collations, before: Layout | None, now: Layout
    ) -> str:
        """Bring a new table in; return why it cannot be, empty when it is or waits."""
        preflight = TriggerPreflight(session, self._settings)
        facts = now.rows.facts(collations)
        errors = [f for f in preflight.of_table(facts) if f.severity is Severity.ERROR]
        if errors:
            return " ".join(f"{f.description} {f.suggestion}" for f in errors)
        place = readers.read_place(session, self._settings.name)
        if place is not None:
            # Before the triggers are looked at: another pipeline would leave them from now on.
            readers.use_tables(session, self._settings, place.tables | {now.table})
        if before == now and installed.with_triggers(session, {now.table: now}):
            return ""
        try:
            self._made(session, collations, before, now)
        except QueryFailed as error:
            return error.message
        return ""

    def _made(
        self, session: Session, collations: Collations, before: Layout | None, layout: Layout
    ) -> bool:
        """Make a table's triggers, unless writers hold it; it is asked for again later then."""
        at, pause_s = self._waits.get(layout.table, (0.0, _PAUSE_S))
        if time.monotonic() < at:
            return False
        try:
            installed.install_table(session, self._settings, collations, before, layout)
        except SourceUnavailable:
            if not session.open:
                raise
            self._waits[layout.table] = time.monotonic() + pause_s, min(2 * pause_s, _LONGEST_S)
            return False
        self._waits.pop(layout.table, None)
        return True
