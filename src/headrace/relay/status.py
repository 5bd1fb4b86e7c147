"""What a capture tells of itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.relay.large import LargeSeen
from headrace.state.store import DumpProgress
from headrace.watermark.slow import SlowSeen

__all__ = ["CaptureStatus"]


@dataclass(frozen=True, slots=True)
class CaptureStatus:
    """What a capture is doing; made at most a few times a second.

    Attributes:
        state: ``streaming``, ``log paused``, ``waiting for source`` or ``waiting for room``.
        detail: the error behind a wait, empty otherwise.
        complete_scn: last durable transaction; ``covered_scn``: the log is whole up to here.
        commit_us: commit time of the last transaction, microseconds since 1970 UTC.
        changes: change rows and system events that this process brought into the log, durable and each once.
        tables: progress of every dump that is not superseded.
        remembered: streamed transactions that no snapshot has seen.
        chunk_rows: rows of the next chunk.
        log_rows_per_s: most change rows delivered per second, 0 for no limit.
        slow: queries that took long at the source.
        large: large values that came into the log.
    """

    state: str
    detail: str
    complete_scn: int
    covered_scn: int
    commit_us: int
    changes: int
    tables: list[DumpProgress]
    remembered: int
    chunk_rows: int = 0
    log_rows_per_s: float = 0.0
    slow: SlowSeen = field(default_factory=SlowSeen)
    large: LargeSeen = field(default_factory=LargeSeen)
