"""How dumps are paced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.state.pace import ADAPTIVE, Pace
from headrace.watermark.pace import DumpPace

__all__ = ["DumpSettings"]


@dataclass(frozen=True, slots=True)
class DumpSettings:
    """Settings of the coordinator.

    Attributes:
        chunk_rows: rows of one bounded select. Larger chunks dump faster and hold the reads longer. None lets the size
            follow the time that a chunk takes.
        chunk_s: seconds that such a chunk aims at.
        load: share of one connection's time that selects may take.
        delay_s: pause between two chunks, during which only the log flows.
        rows_per_s: most rows read per second, 0 for no limit.
        table_chunk_rows: rows of one bounded select by patterns of tables, the first that matches; ``chunk_rows`` for
            the others.
        memory_bytes: rows of streamed transactions that wait for a snapshot to see them.
        snapshot_interval_s: how often an idle capture asks for a snapshot in order to forget transactions.
        piece_rows: rows of one block of a window that is written in pieces (tables without key).
        request_interval_s: how often capture looks for new requests, and for what people did to others and to the pace.
        look_interval_s: how often the source's catalog is looked at for tables that came, went or changed.
    """

    chunk_rows: int | None = None
    chunk_s: float = 0.25
    load: float = 1.0
    delay_s: float = 0.0
    rows_per_s: float = 0.0
    table_chunk_rows: Mapping[str, int] = field(default_factory=dict)
    memory_bytes: int = 64 << 20
    snapshot_interval_s: float = 1.0
    piece_rows: int = 65_536
    request_interval_s: float = 0.5
    look_interval_s: float = 5.0

    def validate(self) -> None:
        """Refuse values that cannot work.

        Raises:
            ValueError: names the field.
        """
        for rows in (self.chunk_rows, *self.table_chunk_rows.values()):
            if rows is not None and not 1 <= rows <= 1_000_000:
                raise ValueError("chunk_rows must lie between 1 and 1,000,000")
        if self.chunk_s <= 0:
            raise ValueError("chunk_s must be above 0")
        if not 0 < self.load <= 1:
            raise ValueError("load must be above 0 and at most 1")
        if self.delay_s < 0:
            raise ValueError("delay_s must not be negative")
        if self.rows_per_s < 0:
            raise ValueError("rows_per_s must not be negative")
        if self.look_interval_s <= 0:
            raise ValueError("look_interval_s must be more than 0")
        if self.memory_bytes < 1 << 20:
            raise ValueError("memory_bytes must be at least 1 MiB")

    def pace(self, set_by_people: Pace) -> DumpPace:
        """Return the pace of dumps: what people have set while we run, else what stands here."""
        wish = set_by_people
        rows = self.chunk_rows if wish.chunk_rows is None else wish.chunk_rows
        return DumpPace(
            None if rows == ADAPTIVE else rows,
            self.chunk_s if wish.chunk_s is None else wish.chunk_s,
            self.load if wish.load is None else wish.load,
            self.delay_s if wish.delay_s is None else wish.delay_s,
            self.rows_per_s if wish.rows_per_s is None else wish.rows_per_s,
            # Whoever sets a size while we run means the table that is read now, whichever that is.
            self.table_chunk_rows if wish.chunk_rows is None else {},
        )
