"""Large values on their way into the change log: counted, and their columns named once.

A value of megabytes is decoded, stored and sent to everybody who does not leave its column out. It costs little to see
them: only blocks and columns that could hold one are looked at.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.block import Block

__all__ = ["LargeSeen", "LargeValues"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LargeSeen:
    """What a capture has seen since it started; what came twice counts twice.

    Attributes:
        count: large values.
        largest_bytes: size of the largest one.
        largest: its table and column.
    """

    count: int = 0
    largest_bytes: int = 0
    largest: str = ""


class LargeValues:
    """Looks at what is appended to the change log. Used from one thread; `seen` from any.

    Args:
        source: its name.
        limit_bytes: from here on a value is large.

    Attributes:
        seen: so far; replaced as a whole.
    """

    def __init__(self, source: str = "", limit_bytes: int = sys.maxsize) -> None:
        self._source = source
        self._limit = limit_bytes
        self._named: set[str] = set()
        self.seen = LargeSeen()

    def append(self, block: Block) -> None:
        """Count the large values of a block."""
        for body in block.bodies:
            rows = body.batch
            # Whole buffers, which a slice may need little of: to ask for that takes a hundred times as long, and
            # small blocks come by the thousand.
            if rows.get_total_buffer_size() >= self._limit:
                for name in rows.schema.names:
                    self._look(f"{body.table}.{name}", rows.column(name))

    def _look(self, name: str, column: pa.Array) -> None:
        has_lengths = pa.types.is_string(column.type) or pa.types.is_binary(column.type)
        if not has_lengths or column.nbytes < self._limit:
            return
        lengths = pc.binary_length(column)
        count = pc.sum(pc.greater_equal(lengths, self._limit)).as_py() or 0
        if not count:
            return
        largest = pc.max(lengths).as_py()
        seen = self.seen
        is_largest = largest > seen.largest_bytes
        self.seen = LargeSeen(
            seen.count + count,
            largest if is_largest else seen.largest_bytes,
            name if is_largest else seen.largest,
        )
        if name not in self._named:
            self._named.add(name)
            _LOG.warning(
                "%s: %s holds values of %s bytes and more, which the change log keeps and every consumer is sent. "
                "Next step: none if they are wanted; else leave the column out (source.columns, or a filter).",
                self._source,
                name,
                f"{self._limit:,}",
            )
