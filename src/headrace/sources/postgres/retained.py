"""How much log a slot keeps at the source, and how long that can go on.

In: one catalog query now and then, over a connection of its own. Out: numbers for ``headrace status`` and a warning
before the server throws the slot away or its disk is full.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from headrace.errors import HeadraceError
from headrace.sources.postgres.connection import Session, connect
from headrace.sources.postgres.settings import PostgresSettings

__all__ = ["Retained", "RetainedWatch", "SlotWatch", "human_bytes"]

WINDOW_S = 600.0
"""Samples older than this say nothing about the rate: the kept log shrinks in jumps, at checkpoints."""
SPAN_S = 30.0
"""Shortest time between two samples that makes a rate."""
WARN_HOURS = 24.0
WARN_BYTES = 10 << 30

_QUERY = """
SELECT s.wal_status, s.safe_wal_size,
       pg_wal_lsn_diff(pg_current_wal_insert_lsn(), s.restart_lsn)::bigint,
       pg_wal_lsn_diff(pg_current_wal_insert_lsn(), s.confirmed_flush_lsn)::bigint,
       current_setting('max_slot_wal_keep_size') = '-1'
  FROM pg_replication_slots s WHERE s.slot_name = $1
"""


@dataclass(frozen=True, slots=True)
class Retained:
    """What one slot keeps.

    Attributes:
        slot: its name.
        wal_status: ``reserved``, ``extended``, ``unreserved`` or ``lost``, as the server says; ``missing``
            without a slot.
        retained_bytes: log that the server keeps on its disk for the slot.
        unread_bytes: log behind the last position that was acknowledged.
        safe_bytes: log that may still be written before the slot is lost, None when no limit is set.
        unlimited: no ``max_slot_wal_keep_size`` is set: the server's disk, whose room cannot be asked, is the limit.
        bytes_per_s: growth of what is kept over the last minutes, None before there is a rate.
        hours_left: time until the limit at this rate, None without a limit, without a rate and when nothing grows.
    """

    slot: str
    wal_status: str
    retained_bytes: int = 0
    unread_bytes: int = 0
    safe_bytes: int | None = None
    unlimited: bool = False
    bytes_per_s: float | None = None
    hours_left: float | None = None

    @property
    def status(self) -> str:
        """The server's own word."""
        return self.wal_status

    @property
    def warning(self) -> str:
        """Why a person should look, empty when there is no reason."""
        if self.wal_status in ("missing", "lost"):
            return f"slot {self.slot} is {self.wal_status}: RESYNC NEEDED"
        if self.wal_status == "unreserved":
            return f"the server may drop the log that slot {self.slot} needs at its next checkpoint"
        short = self.hours_left is not None and self.hours_left < WARN_HOURS
        if short or self.retained_bytes >= WARN_BYTES:
            return str(self)
        return ""

    def __str__(self) -> str:
        kept = f"slot {self.slot} keeps {human_bytes(self.retained_bytes)} of log at the source"
        return f"{kept} ({self.wal_status}), {self._left()}"

    def _left(self) -> str:
        if self.hours_left is not None:
            return f"about {self.hours_left:.1f} h left at this rate"
        grows = self.bytes_per_s is not None and self.bytes_per_s > 0
        rate = f"growing by {human_bytes(int(self.bytes_per_s or 0))}/s" if grows else "not growing"
        if self.unlimited:
            return (
                f"{rate}; max_slot_wal_keep_size is unlimited: the server's disk is the limit, "
                "whose room cannot be asked"
            )
        return f"{rate}, {human_bytes(self.safe_bytes or 0)} left"

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a status file."""
        return {**asdict(self), "warning": self.warning, "text": str(self)}


class RetainedWatch:
    """Measures one slot again and again; used from one thread.

    Args:
        slot: its name.
    """

    def __init__(self, slot: str) -> None:
        self._slot = slot
        self._samples: deque[tuple[float, int]] = deque()

    def look(self, session: Session, now_s: float) -> Retained:
        """Measure once.

        Args:
            session: at the source.
            now_s: monotonic seconds.
        """
        rows = session.rows(_QUERY, self._slot)
        if not rows:
            self._samples.clear()
            return Retained(self._slot, "missing")
        status, safe, retained, unread, unlimited = rows[0]
        kept = int(retained or 0)
        safe_bytes = max(0, int(safe)) if safe is not None else None
        rate = self._rate(now_s, kept)
        hours = None
        if safe_bytes is not None and rate is not None and rate > 0:
            hours = round(safe_bytes / rate / 3600, 2)
        return Retained(
            self._slot,
            status or "",
            kept,
            int(unread or 0),
            safe_bytes,
            unlimited == "t",
            rate,
            hours,
        )

    def _rate(self, now_s: float, kept: int) -> float | None:
        """Return the growth over the window, bytes per second."""
        self._samples.append((now_s, kept))
        while len(self._samples) > 2 and now_s - self._samples[0][0] > WINDOW_S:
            self._samples.popleft()
        begun, before = self._samples[0]
        if now_s - begun < SPAN_S:
            return None
        return round((kept - before) / (now_s - begun), 1)


class SlotWatch:
    """Measures the slot of a source over a connection of its own, made again when it was lost."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._watch = RetainedWatch(settings.slot_name)
        self._session: Session | None = None

    def look(self, now_s: float) -> Retained:
        """Measure once; see `headrace.sources.database.LogWatch`."""
        try:
            if self._session is None:
                self._session = connect(self._settings)
            return self._watch.look(self._session, now_s)
        except HeadraceError:
            self.close()
            raise

    def close(self) -> None:
        """Release the connection."""
        if self._session is not None:
            self._session.close()
            self._session = None


def human_bytes(count: int) -> str:
    """Return a number of bytes with a unit."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
