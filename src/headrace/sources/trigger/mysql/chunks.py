"""Chunk reads: those of MySQL, each in a snapshot that strikes the clock, and looks at the catalog."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping

from headrace.errors import SourceUnavailable
from headrace.model.schema import TableId
from headrace.sources.base import CatalogEntry, CatalogLook
from headrace.sources.mysql.chunks import MysqlChunkReader
from headrace.sources.mysql.connection import Session
from headrace.sources.trigger.mysql.clock import Striker, TickSnapshot
from headrace.sources.trigger.mysql.joining import TableWatch
from headrace.sources.trigger.mysql.refused import refusals
from headrace.sources.trigger.mysql.settings import MysqlTriggerSettings

__all__ = ["TriggerChunkReader"]


class TriggerChunkReader(MysqlChunkReader):
    """Reads chunks; see `headrace.sources.mysql.chunks.MysqlChunkReader`.

    Args:
        settings: what to read.
    """

    def __init__(self, settings: MysqlTriggerSettings) -> None:
        super().__init__(settings.database)
        self._striker = Striker(settings)
        self._watch = TableWatch(settings)

    @contextlib.contextmanager
    def seeing(self, session: Session) -> Iterator[TickSnapshot]:
        """Open a snapshot that has seen all ticks up to the one that it strikes."""
        with self._striker.snapshot(session) as tick:
            yield TickSnapshot(tick.last_scn)

    def whole(self, session: Session) -> contextlib.AbstractContextManager[TickSnapshot]:
        """Open a snapshot likewise: it says of each transaction whether it has seen it."""
        return self.seeing(session)

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
        session, collations = self.connected()
        try:
            with refusals():
                return self._watch.look(session, collations, known, settled, admitted)
        except SourceUnavailable:
            self.close()
            raise

    def close(self) -> None:
        """Release the connections."""
        super().close()
        self._striker.close()
