"""How long a table keeps what its newest version does not need, by its own properties.

A table that is written once a second removes a file each time: weeks of them, the default of the format, would be most
of the folder and of every checkpoint. Our tables say so in their properties, where other writers heed it as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["RETENTION", "files_kept_ms", "log_kept_ms"]

RETENTION = {
    "delta.deletedFileRetentionDuration": "interval 1 hours",
    "delta.logRetentionDuration": "interval 1 days",
}
"""Properties of a new table."""

_DEFAULTS_MS = {
    "delta.deletedFileRetentionDuration": 7 * 86_400_000,
    "delta.logRetentionDuration": 30 * 86_400_000,
}
_INTERVAL = re.compile(r"(?:interval\s+)?(\d+)\s+(second|minute|hour|day|week)s?", re.IGNORECASE)
_UNITS_MS = {
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}


def files_kept_ms(properties: Mapping[str, str]) -> int:
    """Return how long a removed file stays."""
    return _kept(properties, "delta.deletedFileRetentionDuration")


def log_kept_ms(properties: Mapping[str, str]) -> int:
    """Return how long an old version can be asked for."""
    return _kept(properties, "delta.logRetentionDuration")


def _kept(properties: Mapping[str, str], name: str) -> int:
    """Return a duration; the format's default when it is absent or of a unit without fixed length."""
    match = _INTERVAL.fullmatch(properties.get(name, "").strip())
    return int(match[1]) * _UNITS_MS[match[2].lower()] if match else _DEFAULTS_MS[name]
