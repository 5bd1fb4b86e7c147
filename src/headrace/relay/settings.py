"""How a capture works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from headrace.model.schema import TableId
from headrace.watermark.settings import DumpSettings

__all__ = ["CaptureSettings"]


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """Settings of a capture.

    Attributes:
        dump: how dumps are paced.
        poll_s: longest wait for the log in one round.
        retry_s: pause before a lost source or a full disk is tried again.
        spool_folder: where tables without a key wait for their window to close.
        adopted: whether a table's first copy is a dump made elsewhere, which capture only waits for.
        slow_query_s: a query of the reading side that takes longer is counted as slow.
        large_value_bytes: from here on a value is counted as large.
        renewed: whether the source is to be asked otherwise than it is, with another password for example.
    """

    dump: DumpSettings = field(default_factory=DumpSettings)
    poll_s: float = 0.05
    retry_s: float = 1.0
    spool_folder: Path = Path("spool")
    adopted: Callable[[TableId], bool] = lambda _table: False
    slow_query_s: float = 5.0
    large_value_bytes: int = 2**20
    renewed: Callable[[], bool] = lambda: False
