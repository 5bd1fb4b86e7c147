"""How dumps are paced."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DumpSettings"]


@dataclass(frozen=True, slots=True)
class DumpSettings:
    """Settings of the coordinator.

    Attributes:
        chunk_rows: rows of one bounded select. Larger chunks dump faster and hold the reads longer.
        delay_s: pause between two chunks, during which only the log flows.
        memory_bytes: rows of streamed transactions that wait for a snapshot to see them.
        snapshot_interval_s: how often an idle capture asks for a snapshot in order to forget transactions.
        piece_rows: rows of one block of a window that is written in pieces (tables without key).
        request_interval_s: how often an idle capture looks for new requests.
        look_interval_s: how often the source's catalog is looked at for tables that came, went or changed.
    """

    chunk_rows: int = 10_000
    delay_s: float = 0.0
    memory_bytes: int = 64 << 20
    snapshot_interval_s: float = 1.0
    piece_rows: int = 65_536
    request_interval_s: float = 0.2
    look_interval_s: float = 5.0

    def validate(self) -> None:
        """Refuse values that cannot work.

        Raises:
            ValueError: names the field.
        """
        if not 1 <= self.chunk_rows <= 1_000_000:
            raise ValueError("chunk_rows must lie between 1 and 1,000,000")
        if self.delay_s < 0:
            raise ValueError("delay_s must not be negative")
        if self.look_interval_s <= 0:
            raise ValueError("look_interval_s must be more than 0")
        if self.memory_bytes < 1 << 20:
            raise ValueError("memory_bytes must be at least 1 MiB")
