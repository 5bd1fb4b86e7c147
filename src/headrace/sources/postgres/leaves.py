"""Notices in the log a partition that is told by another replica identity than the root under whose name it comes.

The log describes a partition right behind its root, before the first row, each with the identity of that moment; the
rows themselves name the root alone. An identity that was altered and put back between two looks is seen nowhere else.
"""

from __future__ import annotations

from headrace.model.schema import TableId
from headrace.sources.postgres.messages import Relation
from headrace.sources.postgres.settings import PostgresSettings
from headrace.sources.postgres.side import SideSession
from headrace.sources.postgres.tables_check import reads_as

__all__ = ["Leaves"]

_IS_BELOW = "SELECT FROM pg_partition_ancestors($1::oid::regclass) a WHERE a.relid = $2::oid"


class Leaves:
    """Compares each description with the one before it; used from the stream's thread."""

    def __init__(self, settings: PostgresSettings, side: SideSession) -> None:
        self._filter = settings.filter
        self._side = side
        self._before: Relation | None = None

    def misread(self, relation: Relation) -> frozenset[str]:
        """Return the root of a partition, as an identity, whose old rows are misread from here on; empty without one.

        Args:
            relation: the next description of the log.
        """
        root, self._before = self._before, relation
        if root is None or reads_as(root.identity, relation.identity):
            return frozenset()
        if not self._filter.selects(TableId(root.schema, root.name)):
            return frozenset()
        # Any table may come behind any other.
        below = self._side.get().rows(_IS_BELOW, str(relation.oid), str(root.oid))
        return frozenset([str(root.oid)] if below and root.oid != relation.oid else [])
