"""References to blocks: what a planner needs to know of a block without reading its rows."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.changelog.mapped import MappedSegment
from headrace.changelog.segment import corrupt
from headrace.errors import ProtocolError
from headrace.model.block import SYSTEM_SCHEMA_ID
from headrace.wire.block import BlockHeader, read_directory

__all__ = ["BlockRef", "block_ref"]


@dataclass(frozen=True, slots=True)
class BlockRef:
    """One block in a segment file; small and picklable, so it travels to executors.

    Attributes:
        segment: file name inside the log's folder.
        offset: of the block in the file.
        length: of the block.
        first_scn: of its first transaction.
        last_scn: of its last transaction.
        rows: change rows in it.
        bytes: of all bodies.
        ends_complete: whether no transaction is left open at its end.
        tables: ``(schema id, rows)`` per body; `SYSTEM_SCHEMA_ID` stands for the system events.
    """

    segment: str
    offset: int
    length: int
    first_scn: int
    last_scn: int
    rows: int
    bytes: int
    ends_complete: bool
    tables: tuple[tuple[int, int], ...]

    @property
    def has_system(self) -> bool:
        """Whether system events are among its bodies."""
        return any(schema_id == SYSTEM_SCHEMA_ID for schema_id, _ in self.tables)


def block_ref(segment: MappedSegment, offset: int, header: BlockHeader) -> BlockRef:
    """Return the reference to a block.

    Raises:
        CorruptSegment: when its directory fails its checksum.
    """
    try:
        directory = read_directory(segment.view, header, offset)
    except ProtocolError as error:
        raise corrupt(segment.name, offset, error.message) from error
    return BlockRef(
        str(segment.name),
        offset,
        header.length,
        header.first_scn,
        header.last_scn,
        header.rows,
        header.length - header.head_length,
        header.ends_complete,
        tuple((entry.schema_id, entry.rows) for entry in directory),
    )
