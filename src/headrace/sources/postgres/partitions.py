"""Tells of partitions that came to a captured root, or left it, with rows that no log has.

The server writes only that they came or went. Rows of a partition that is attached are missing from the copy until a
dump, those of one that is detached or dropped stay in it until a comparison.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from headrace.model.schema import TableId

__all__ = ["PartitionWatch"]

_LOG = logging.getLogger(__name__)

_WENT = (
    "%s: %s left it. The rows that it held are in no log, and stay in the target. Next step: headrace resync FILE "
    "--force, which compares the tables and repairs what differs."
)
_CAME = (
    "%s: %s was attached to it. The rows that it held before are in no log. Next step: headrace dump start FILE "
    "--table %s."
)


class PartitionWatch:
    """Compares the partitions of captured roots with those of the last look; used from one thread."""

    def __init__(self) -> None:
        self._held: dict[int, dict[int, TableId]] = {}

    def look(
        self,
        roots: Mapping[int, TableId],
        parts: Mapping[int, Mapping[int, TableId]],
        attached: Collection[int],
    ) -> None:
        """Log a warning for each partition with rows of its own that came or went.

        Args:
            roots: captured tables.
            parts: partitions by root, also of one that is not captured yet: its copy may begin with this look.
            attached: partitions that were tables before; one that was made as a partition came without rows.
        """
        held = {root: dict(below) for root, below in parts.items()}
        for root in roots.keys() & self._held.keys():
            before, now = self._held[root], held.get(root, {})
            for oid in sorted(before.keys() - now.keys()):
                _LOG.warning(_WENT, roots[root], before[oid])
            for oid in sorted((now.keys() - before.keys()) & set(attached)):
                _LOG.warning(_CAME, roots[root], now[oid], roots[root])
        self._held = held
