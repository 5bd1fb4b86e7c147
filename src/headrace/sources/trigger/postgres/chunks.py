"""Chunk reads and looks at the catalog: those of PostgreSQL, where tables join by triggers."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from headrace.errors import SourceUnavailable
from headrace.model.schema import TableId
from headrace.sources.base import CatalogEntry, CatalogLook, Severity
from headrace.sources.postgres.catalog import TableFacts, TypeCache
from headrace.sources.postgres.catalog_look import CatalogWatch, Seen
from headrace.sources.postgres.chunks import PostgresChunkReader
from headrace.sources.postgres.connection import QueryFailed, Session
from headrace.sources.taken import NOT_LEFT_OUT
from headrace.sources.trigger.cost import lost_triggers
from headrace.sources.trigger.postgres import readers
from headrace.sources.trigger.postgres.installed import install_table, wrong_triggers
from headrace.sources.trigger.postgres.preflight import check_table, may_install
from headrace.sources.trigger.postgres.settings import PostgresTriggerSettings

__all__ = ["TriggerChunkReader", "TriggerJoining"]

# Undefined table or schema: it was dropped meanwhile.
_GONE = ("42P01", "3F000")

_LOCK_S = 0.1
_PAUSE_S = 1.0
_LONGEST_S = 60.0


class TriggerChunkReader(PostgresChunkReader):
    """Reads chunks; see `headrace.sources.postgres.chunks.PostgresChunkReader`.

    Args:
        settings: what to read.
        types: shared with the stream.
        seen: what looks at the catalog tell the stream.
    """

    def __init__(self, settings: PostgresTriggerSettings, types: TypeCache, seen: Seen) -> None:
        joining = TriggerJoining(settings)
        watch = CatalogWatch(settings.database, seen, joining)
        super().__init__(settings.database, types, seen, watch, NOT_LEFT_OUT)
        self._triggers = settings

    def look(
        self,
        known: Mapping[str, CatalogEntry],
        settled: Collection[TableId],
        admitted: Collection[str],
    ) -> CatalogLook:
        """Compare the catalog with what was known of it; see `headrace.sources.base.CatalogReader`.

        Raises:
            SlotLost: somebody took the triggers of a captured table away.
        """
        look = super().look(known, settled, admitted)
        present = {int(identity): entry.table for identity, entry in look.tables.items()}
        wrong = wrong_triggers(self._connected(), present)
        # One that was dropped between the two questions has no trigger either.
        if wrong and (
            wrong := wrong & {int(i) for i in super().look(known, settled, admitted).tables}
        ):
            raise lost_triggers(present[oid] for oid in wrong)
        return look


class TriggerJoining:
    """`headrace.sources.postgres.joining.Joins` by triggers. Used from one thread.

    Whoever wants to write waits behind us while we wait for a table: so that is done briefly, and ever more seldom.
    """

    def __init__(self, settings: PostgresTriggerSettings) -> None:
        self._settings = replace(settings, lock_s=_LOCK_S)
        self._waits: dict[int, tuple[float, float]] = {}

    def step(
        self, session: Session, tables: Iterable[TableFacts]
    ) -> tuple[set[int], dict[int, str]]:
        """Return the oids that have joined, and why others cannot."""
        joined: set[int] = set()
        refused: dict[int, str] = {}
        now = time.monotonic()
        for facts in tables:
            at, pause_s = self._waits.get(facts.oid, (now, _PAUSE_S))
            if now < at:
                continue
            errors = [f for f in check_table(facts) if f.severity is Severity.ERROR]
            if errors:
                refused[facts.oid] = " ".join(f"{f.description} {f.suggestion}" for f in errors)
                continue
            try:
                if wrong_triggers(session, [facts.oid]):
                    if finding := may_install(session, self._settings, [facts]):
                        refused[facts.oid] = f"{finding.description} {finding.suggestion}"
                        continue
                    install_table(session, self._settings, facts.table)
                readers.use_table(session, self._settings.name, facts.oid)
                if wrong_triggers(session, [facts.oid]):
                    # Another pipeline removed them before it could know of us; from now on it leaves them.
                    continue
                joined.add(facts.oid)
            except QueryFailed as error:
                if error.sqlstate not in _GONE:
                    refused[facts.oid] = error.message
            except SourceUnavailable:
                # Writers hold the table; it is asked for again later.
                if not session.usable:
                    raise
                self._waits[facts.oid] = time.monotonic() + pause_s, min(2 * pause_s, _LONGEST_S)
        return joined, refused
