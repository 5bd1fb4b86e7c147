"""A relay's log: what `headrace.spark.log` asks of one, over HTTP."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from headrace.changelog.tail import Tail
from headrace.client.outline import Extent
from headrace.client.ranges import Ranges
from headrace.model.block import Block
from headrace.model.schema import TableSchema
from headrace.wire.filters import Filter

__all__ = ["RelayLog", "RelayRegistry"]


class RelayLog:
    """The log of one source.

    Args:
        ranges: its relays.
        wanted: what the relay leaves of the blocks.
    """

    def __init__(self, ranges: Ranges, wanted: Filter) -> None:
        self._ranges = ranges
        self._filter = wanted.to_json()

    def tail(self) -> Tail:
        """Return what the relay can serve now."""
        said = self._ranges.reach()
        return Tail(*(int(said[name]) for name in Tail.__dataclass_fields__))

    def refs(self, after_scn: int, upto_scn: int) -> Iterator[Extent]:
        """Yield the extents of a range; the relay is asked on as they are taken."""
        return self._ranges.outline(after_scn, upto_scn)

    def read(self, refs: Collection[Extent], schema_ids: Collection[int]) -> Iterator[Block]:
        """Yield the blocks from the first to the last of some extents."""
        if not refs:
            return
        first, last = min(ref.first_scn for ref in refs), max(ref.last_scn for ref in refs)
        for block in self._ranges.blocks(first - 1, last, self._filter):
            bodies = tuple(body for body in block.bodies if body.schema_id in schema_ids)
            yield replace(block, bodies=bodies)


class RelayRegistry:
    """Table versions, as the relays of a source tell them."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges

    def get(self, schema_id: int) -> TableSchema:
        """Return the version of an id.

        Raises:
            NotServed: no relay knows it.
        """
        return self._ranges.schema(schema_id)
