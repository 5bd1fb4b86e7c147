"""A source's log under the SCNs of its incarnation: each number of the source plus one offset."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.block import Block, Body
from headrace.sources.base import LogItem, LogReader

__all__ = ["RenumberedReader", "renumbered"]


class RenumberedReader:
    """Reads another log and adds ``offset`` to every SCN; positions stay the source's own."""

    def __init__(self, reader: LogReader, offset: int) -> None:
        self._reader = reader
        self._offset = offset

    def poll(self, timeout_s: float) -> LogItem | None:
        """Return what has arrived; see `LogReader.poll`."""
        item = self._reader.poll(timeout_s)
        if item is None:
            return None
        mark = item.mark
        if mark is not None:
            mark = replace(mark, scn=mark.scn + self._offset)
        return replace(item, block=renumbered(item.block, self._offset), mark=mark)

    def acknowledge(self, position: str) -> None:
        """Tell the source that everything up to ``position`` is durable here."""
        self._reader.acknowledge(position)

    def keep_alive(self) -> None:
        """Show the source that we are there while nothing is polled."""
        self._reader.keep_alive()

    def close(self) -> None:
        """Release the connection."""
        self._reader.close()


def renumbered(block: Block, offset: int) -> Block:
    """Return the block with ``offset`` added to every SCN in it."""
    index = block.index.copy()
    index["scn"] += offset
    return Block(
        index,
        tuple(replace(body, batch=_moved(body, offset)) for body in block.bodies),
        tuple(replace(event, scn=event.scn + offset) for event in block.system),
        block.covered_scn + offset,
    )


def _moved(body: Body, offset: int) -> pa.RecordBatch:
    batch = body.batch
    place = batch.schema.get_field_index("_scn")
    scn = pc.add(batch.column(place), pa.scalar(offset, pa.int64()))
    return batch.set_column(place, batch.schema.field(place), scn)
